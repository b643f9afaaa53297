"""Hard negatives are other queries' answers, never one's own, and feed the recipes."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lmk_embed import ConfigError, LandmarkEncoder
from lmk_embed.cli import app
from lmk_embed.training import CorpusError
from lmk_embed.training.labelled import read_pairs, read_scores
from lmk_embed.training.mining import mine
from training.test_fit import fact, pair_rows, write


@pytest.fixture(scope="module")
def encoder(tiny_model: Path) -> LandmarkEncoder:
    return LandmarkEncoder.from_pretrained(tiny_model, device="cpu")


def test_rows_for_both_recipes(encoder: LandmarkEncoder, tmp_path: Path) -> None:
    pairs = write(tmp_path / "pairs.jsonl", pair_rows(20))
    done = mine([pairs], encoder, tmp_path / "mined.jsonl.gz", negatives=3, margin=0.0)
    assert done.rows + done.left_out == 20
    assert done.rows > 0
    found = read_pairs([tmp_path / "mined.jsonl.gz"]).rows
    assert len(found) == done.rows
    assert list(found[0]) == ["query", "positive", "negative_1", "negative_2", "negative_3"]
    answers = {fact(n)[0]: fact(n)[1] for n in range(20)}
    for row in found:
        wrong = {row[f"negative_{number}"] for number in (1, 2, 3)}
        assert row["positive"] == answers[row["query"]]
        assert len(wrong) == 3
        assert wrong <= set(answers.values()) - {row["positive"]}
    scored = read_scores([tmp_path / "mined.jsonl.gz"], 4).rows
    assert all(row["label"] == sorted(row["label"], reverse=True) for row in scored)
    with gzip.open(tmp_path / "mined.jsonl.gz", "rt") as lines:
        row = json.loads(next(lines))
    expected = encoder.encode_query(row["query"]) @ encoder.encode_document(row["positive"]).vector
    assert row["scores"][0] == pytest.approx(float(expected), abs=1e-4)


def test_what_cannot_be_mined_leaves_no_file(encoder: LandmarkEncoder, tmp_path: Path) -> None:
    pairs = write(tmp_path / "pairs.jsonl", pair_rows(3))
    with pytest.raises(CorpusError, match="3 different positives cannot give 4 negatives"):
        mine([pairs], encoder, tmp_path / "out.jsonl")
    with pytest.raises(CorpusError, match=r"none of 3 queries has 2 negatives below 0\.0\d*"):
        mine([pairs], encoder, tmp_path / "out.jsonl", negatives=2, margin=0.999)
    with pytest.raises(ConfigError, match=r"must end in .jsonl or .jsonl.gz"):
        mine([pairs], encoder, tmp_path / "out.txt")
    with pytest.raises(ConfigError, match=r"got 0 and 0\.05"):
        mine([pairs], encoder, tmp_path / "out.jsonl", negatives=0)
    assert [path.name for path in tmp_path.iterdir()] == ["pairs.jsonl"]


def test_from_the_command_line(tiny_model: Path, tmp_path: Path) -> None:
    pairs = write(tmp_path / "pairs.jsonl", pair_rows(12))
    out = tmp_path / "mined.jsonl"
    command = [
        "mine",
        str(pairs),
        "--out",
        str(out),
        "--model",
        str(tiny_model),
        "--negatives",
        "2",
        "--margin",
        "0",
    ]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    assert f"rows in {out}" in result.output
    assert read_pairs([out]).rows
