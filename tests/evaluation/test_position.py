"""Needles stand where they were put, and a system that does not read to the end is found out."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from lmk_embed import ConfigError
from lmk_embed.cli import app
from lmk_embed.evaluation import Model, build, parse_systems, position_bias
from lmk_embed.evaluation.needles import Haystack, needle_set


def words(text: str) -> int:
    return len(text.split())


GENERATED = Haystack.generated(words, 0)
LONGEST = max(GENERATED.lengths)


@settings(max_examples=100, deadline=None)
@given(
    n_tokens=st.integers(16, 3000),
    depth=st.floats(0, 1),
    candidates=st.integers(2, 5),
    seed=st.integers(0, 50),
)
def test_a_needle_is_where_it_was_put(n_tokens: int, depth: float, candidates: int, seed: int) -> None:
    found = needle_set(GENERATED, words, n_tokens=n_tokens, depth=depth, candidates=candidates, seed=seed)
    assert len(found.documents) == len(found.queries) == candidates
    for query_id, gold in found.spans.items():
        ((doc_id, ((start, end),)),) = gold.items()
        text = found.documents[doc_id]
        needle = text[start:end]
        person = found.queries[query_id].removeprefix("What is the pass key of ").removesuffix("?")
        assert needle.startswith(f"The pass key of {person} is ")
        assert n_tokens - 2 * LONGEST <= words(text) <= n_tokens
        before = round((n_tokens - words(needle)) * depth)
        assert before - LONGEST < words(text[:start]) <= before
        assert sum(needle in other for other in found.documents.values()) == 1
        assert text == text.strip()
    again = needle_set(GENERATED, words, n_tokens=n_tokens, depth=depth, candidates=candidates, seed=seed)
    assert again.content_hash == found.content_hash


def test_ones_own_text_can_be_the_haystack() -> None:
    haystack = Haystack.of(["One sentence. Two of them!\nThree?", "Four here."], words, 0)
    assert sorted(sentence.strip() for sentence in haystack.sentences) == [
        "Four here.",
        "One sentence.",
        "Three?",
        "Two of them!",
    ]
    text = needle_set(haystack, words, n_tokens=60, depth=0.5, candidates=2, seed=1).documents["d0"]
    assert text.count("Four here.") > 1
    with pytest.raises(ConfigError, match="no sentence to hide a needle"):
        Haystack.of([" \n"], words, 0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"depth": 1.5}, "between 0 and 1, got 1.5"),
        ({"candidates": 1}, "candidates must lie between 2 and 650, got 1"),
        ({"n_tokens": 3}, "a document of 3 tokens cannot hold a needle of 8"),
    ],
)
def test_impossible_numbers_are_refused(changes: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        needle_set(GENERATED, words, **{"n_tokens": 100, "depth": 0.5, "candidates": 2, "seed": 0, **changes})


def test_a_system_that_is_cut_off_misses_what_stands_behind(tmp_path: Path) -> None:
    """The bundled model, whole and truncated: at the end of 900 tokens a row of 512 ends before the answer."""
    model = Model(None)
    systems = [build(spec, model, model) for spec in parse_systems(["landmark", "truncated"])]
    report = position_bias(
        systems,
        model.count,
        lengths=[200, 900],
        depths=2,
        candidates=8,
        cache_folder=tmp_path,
        show_progress=False,
    )
    lengths, depths, whole = report.grid("landmark", "best chunk")
    assert (lengths, depths) == ([200, 900], [0.0, 1.0])
    assert whole.min() > 0.8
    _, _, cut = report.grid("truncated", "document vector")
    assert cut[0].min() > 0.8
    assert cut[1, 0] > 0.8
    assert cut[1, 1] < 0.6
    files = report.save(tmp_path / "report")
    assert [path.name for path in files] == ["position.json", "position.csv", "position.png"]
    assert files[2].read_bytes()[:4] == b"\x89PNG"
    with files[1].open() as lines:
        rows = list(csv.DictReader(lines))
    assert len(rows) == 2 * 2 * 2 * 2
    cells = json.loads(files[0].read_text())["cells"]
    assert np.isclose(float(rows[0]["mrr"]), cells[0]["mrr"])
    assert "| truncated | document vector | 900 |" in report.to_markdown()


def test_from_the_command_line(tiny_model: Path, tmp_path: Path) -> None:
    command = ["eval", "--position-bias", "--model", str(tiny_model), "--system", "late-chunking"]
    command += ["--length", "64", "--depths", "3", "--candidates", "2", "--out", str(tmp_path / "report")]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    assert "| late-chunking:64 | best chunk | 64 |" in result.output.replace(
        "late-chunking |", "late-chunking:64 |"
    )
    assert (tmp_path / "report" / "position.png").exists()


def test_without_data_sets_there_is_nothing_else_to_measure(tiny_model: Path, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["eval", "--model", str(tiny_model), "--out", str(tmp_path / "report")])
    assert result.exit_code != 0
    assert "no data set given" in str(result.exception)
