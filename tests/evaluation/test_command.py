"""``lmk eval`` from the command line to the report."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from evaluation.counting import Counting
from lmk_embed.cli import app
from lmk_embed.errors import LandmarkError
from lmk_embed.evaluation import Dataset, EncoderEmbedder, Model, System, evaluate, read_dataset
from lmk_embed.evaluation.report import Outcome, Report

TOPICS = ("deposit", "boiler", "garden", "parking", "insurance", "keys")


def write_dataset(base: Path, *, n_docs: int = 4, sentences: int = 40, spans: bool = True) -> Path:
    """Write a set in which each query names one sentence of one document."""
    base.mkdir(parents=True)
    corpus, queries, qrels, gold = [], [], ["query-id\tcorpus-id\tscore"], []
    for d in range(n_docs):
        text = ""
        for i in range(sentences):
            topic = TOPICS[(d + i) % len(TOPICS)]
            sentence = f"In house {d} the rule {i} about the {topic} costs {d * 100 + i} pounds. "
            if i % 7 == 3:
                query = f"q{d}-{i}"
                queries.append({"_id": query, "text": f"What does rule {i} about the {topic} in house {d} cost?"})
                qrels.append(f"{query}\td{d}\t1")
                gold.append(
                    {"query_id": query, "doc_id": f"d{d}", "spans": [[len(text), len(text) + len(sentence)]]}
                )
            text += sentence
        corpus.append({"_id": f"d{d}", "title": "", "text": text})
    for name, rows in (("corpus", corpus), ("queries", queries), *((("spans", gold),) if spans else ())):
        (base / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (base / "qrels.tsv").write_text("\n".join(qrels) + "\n")
    return base


def lmk(*args: object) -> Result:
    result = CliRunner().invoke(app, ["eval", *map(str, args)])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.fixture(scope="module")
def houses(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_dataset(tmp_path_factory.mktemp("data") / "houses")


def test_end_to_end(houses: Path, tiny_model: Path, tmp_path: Path) -> None:
    plain = write_dataset(tmp_path / "plain", n_docs=2, spans=False)
    out = tmp_path / "report"
    systems = ["landmark", "split-and-embed:32", "smoothed:32", "late-chunking:32", "truncated", "windows"]
    options = [part for name in systems for part in ("--system", name)]
    args = (houses, plain, *options, "--model", tiny_model, "--out", out, "--k", 3, "--budget", 500)
    result = lmk(*args, "--resamples", 200)
    assert result.exit_code == 0
    assert {path.name for path in out.iterdir()} == {
        "report.json",
        "report.md",
        "houses.png",
        "plain.png",
        "mean.png",
        "vectors",
    }
    assert (out / "houses.png").read_bytes().startswith(b"\x89PNG") and (out / "mean.png").stat().st_size > 10_000
    markdown = (out / "report.md").read_text()
    assert result.stdout == markdown
    for part in ("## Mean over 2 data sets", "## houses", "| smoothed:32 |", "recall in 500 characters", "IoU@3"):
        assert part in markdown

    report = json.loads((out / "report.json").read_text())
    assert report["settings"]["model"] == str(tiny_model) and report["settings"]["budget"] == 500
    assert report["baseline"] == "split-and-embed:32"
    assert report["environment"]["packages"].keys() >= {"torch", "sentence-transformers", "ir-measures"}
    assert [system["name"] for system in report["systems"]] == systems
    assert len({system["fingerprint"] for system in report["systems"]}) == 5, "smoothed shares split-and-embed's"
    with_spans, without = report["datasets"]
    assert with_spans["queries"] == {"spans": 24, "documents": 24} and without["queries"] == {"documents": 12}
    assert len(with_spans["systems"][0]["outcomes"]) == 11 and len(without["systems"][0]["outcomes"]) == 6
    assert [row["cut_documents"] for row in with_spans["systems"]] == [0, 0, 0, 0, 4, 0]
    check_values(report)

    before = {path: path.stat().st_mtime_ns for path in (out / "vectors").rglob("*.npz")}
    again = lmk(*args, "--resamples", 200)
    assert again.stdout == markdown, "the second time all vectors come from disk, seconds included"
    assert before == {path: path.stat().st_mtime_ns for path in (out / "vectors").rglob("*.npz")}


def check_values(report: dict[str, Any]) -> None:
    for row in (row for found in report["datasets"] for row in found["systems"]):
        for outcome in row["outcomes"].values():
            assert 0 <= outcome["low"] <= outcome["mean"] <= outcome["high"] <= 1
            assert (outcome["difference"] is None) == (row["system"] == report["baseline"])
    first, second = ({row["system"]: row["outcomes"] for row in d["systems"]} for d in report["datasets"])
    metric = "best_chunk.ndcg@10"
    mean = report["means"]["landmark"][metric]
    assert mean["mean"] == pytest.approx(
        (first["landmark"][metric]["mean"] + second["landmark"][metric]["mean"]) / 2
    )
    base = report["means"]["split-and-embed:32"][metric]
    assert mean["difference"]["mean"] == pytest.approx(mean["mean"] - base["mean"])
    only_first = report["means"]["landmark"]["spans.recall@500chars"]
    assert only_first == first["landmark"]["spans.recall@500chars"], "means are over sets that have the metric"


def test_the_bundled_model_finds_what_is_asked_for(tmp_path: Path) -> None:
    houses = write_dataset(tmp_path / "houses", n_docs=2, sentences=18)
    systems = ("--system", "landmark", "--system", "split-and-embed:32")
    assert lmk(houses, *systems, "--out", tmp_path / "r", "--queries", 5, "--baseline", "landmark").exit_code == 0
    report = json.loads((tmp_path / "r" / "report.json").read_text())
    assert report["baseline"] == "landmark" and report["settings"]["queries"] == 5
    (found,) = report["datasets"]
    assert found["queries"] == {"spans": 5, "documents": 5}
    for row in found["systems"]:
        assert row["outcomes"]["spans.recall@3000chars"]["mean"] > 0.8
        assert row["outcomes"]["best_chunk.mrr@10"]["mean"] > 0.7


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--system", "split-and-embd"], "did you mean 'split-and-embed'"),
        (["--system", "landmark", "--baseline", "windows"], "the baseline 'windows' is not among"),
        (["--system", "landmark", "--model", "./nope"], "no model folder at nope"),
    ],
)
def test_errors_come_before_any_work(houses: Path, tmp_path: Path, args: list[str], message: str) -> None:
    with pytest.raises(LandmarkError, match=message):
        lmk(houses, "--out", tmp_path / "r", *args)
    assert not (tmp_path / "r").exists()


def test_two_sets_of_one_name(houses: Path, tmp_path: Path, tiny_model: Path) -> None:
    with pytest.raises(LandmarkError, match="data set 'houses' is given twice"):
        lmk(houses, houses, "--out", tmp_path / "r", "--system", "landmark", "--model", tiny_model)


def test_ctrl_c_keeps_what_is_done(tiny_model: Path, tmp_path: Path) -> None:
    data = write_dataset(tmp_path / "large", n_docs=24, sentences=1000)
    command = ["eval", str(data), "--system", "landmark", "--model", str(tiny_model), "--out", str(tmp_path / "r")]
    running = subprocess.Popen(
        [sys.executable, "-m", "lmk_embed", *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    while not (stored := sorted((tmp_path / "r").rglob("documents-*.npz"))):
        assert running.poll() is None, running.communicate()
        time.sleep(0.02)
    os.kill(running.pid, signal.SIGINT)
    _, err = running.communicate(timeout=60)
    assert running.returncode == 130
    assert "run the same command again" in err and "Traceback" not in err
    assert not (tmp_path / "r" / "report.json").exists()
    assert not [path for path in (tmp_path / "r").rglob("*") if path.name.startswith(".")]
    assert stored[0].stat().st_size > 0


def test_an_encoder_in_memory_can_be_judged_without_a_trace(houses: Path, tiny_model: Path) -> None:
    """What training does now and then with the weights it has."""
    system = System("step 400", "student", EncoderEmbedder("step 400", Model(tiny_model).encoder(granularity=32)))
    report = evaluate([read_dataset(houses)], [system], show_progress=False)
    assert isinstance(report, Report)
    outcome = report.means["step 400"]["spans.recall@3000chars"]
    assert isinstance(outcome, Outcome) and 0 <= outcome.score.mean <= 1 and outcome.difference is None
    assert re.search(r"\| step 400 \| \.?\d", report.to_markdown())


def test_a_perfect_system_scores_one() -> None:
    """Through everything but a model: the chunks are the gold spans."""
    text = "".join(f"{i:04}" for i in range(50))
    names = [f"q{i}" for i in range(5)]
    data = Dataset("known", {"d": text}, dict.fromkeys(names, "?"), {}, {q: {"d": ((0, 200),)} for q in names})
    report = evaluate([data], [System("one", "m", Counting())], show_progress=False)
    outcomes = report.means["one"]
    assert {name: found.score.mean for name, found in outcomes.items()} == dict.fromkeys(outcomes, 1.0)
