"""Benchmarks of mteb, on local tasks of the kinds that the published ones have."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import mteb
import pytest
from datasets import Dataset, DatasetDict
from mteb.abstasks import AbsTaskClassification, AbsTaskRetrieval, AbsTaskSTS
from mteb.abstasks.task_metadata import TaskMetadata
from typer.testing import CliRunner

from lmk_embed import ConfigError, LandmarkEncoder
from lmk_embed.cli import app
from lmk_embed.evaluation.published import BENCHMARKS, mteb_model, published_tasks, run_published

FACTS = {
    "pump": "Check the oil of the pump each week.",
    "pets": "Dogs and cats are allowed in every flat.",
    "train": "Tickets are sold on board of the train.",
}
FILLER = "The weather was mild and nobody wrote about it. " * 12


def about(name: str, kind: Any, score: str) -> TaskMetadata:
    return TaskMetadata(
        name=name,
        dataset={"path": "local", "revision": "1"},
        description="Made here.",
        type=kind,
        category="t2t" if kind == "Retrieval" else "t2c",
        modalities=["text"],
        eval_splits=["test"],
        eval_langs=["eng-Latn"],
        main_score=score,
    )


class ShortPassages(AbsTaskRetrieval):
    metadata = about("ShortPassages", "Retrieval", "ndcg_at_10")
    around = ""

    def load_data(self, **_: Any) -> None:
        corpus = [{"id": k, "text": self.around + v + self.around, "title": ""} for k, v in FACTS.items()]
        part = {
            "corpus": Dataset.from_list(corpus),
            "queries": Dataset.from_list([{"id": k, "text": v} for k, v in FACTS.items()]),
            "relevant_docs": {k: {k: 1} for k in FACTS},
            "top_ranked": None,
        }
        self.dataset = {"default": {"test": part}}
        self.data_loaded = True


class LongDocuments(ShortPassages):
    """Longer than a row of the model below, on both sides of the answer."""

    metadata = about("LongDocuments", "Retrieval", "ndcg_at_10")
    around = FILLER


class Similar(AbsTaskSTS):
    metadata = about("Similar", "STS", "cosine_spearman")

    def load_data(self, **_: Any) -> None:
        texts = list(FACTS.values())
        rows = [
            {"sentence1": one, "sentence2": other, "score": 5.0 if one == other else 0.0}
            for one in texts
            for other in texts
        ]
        self.dataset = DatasetDict({"test": Dataset.from_list(rows)})
        self.data_loaded = True


class Topics(AbsTaskClassification):
    metadata = about("Topics", "Classification", "accuracy")
    n_experiments = 2

    def load_data(self, **_: Any) -> None:
        rows = [{"text": f"{text} {n}", "label": at} for at, text in enumerate(FACTS.values()) for n in range(8)]
        self.dataset = DatasetDict({"train": Dataset.from_list(rows), "test": Dataset.from_list(rows)})
        self.data_loaded = True


def tasks() -> list[Any]:
    return [ShortPassages(), LongDocuments(), Similar(), Topics()]


@pytest.fixture
def encoder(tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> LandmarkEncoder:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    return LandmarkEncoder.from_pretrained(tiny_model, max_seq_length=64, granularity=16, device="cpu")


def test_each_kind_of_task_is_scored_and_kept(encoder: LandmarkEncoder, tmp_path: Path) -> None:
    options: dict[str, Any] = {"name": "org/tiny", "device": "cpu", "show_progress": False}
    report = run_published(encoder, tasks(), tmp_path, **options)
    scores = {each.task: each.score for each in report.scores}
    assert [each.kind for each in report.scores] == ["Retrieval", "Retrieval", "STS", "Classification"]
    assert scores["ShortPassages"] == 1  # each query is the document
    assert 0 < scores["LongDocuments"] <= 1
    assert scores["Similar"] > 0.5
    assert scores["Topics"] > 0.9
    assert "| **mean of 2** | Retrieval |" in report.to_markdown()
    files = report.save(tmp_path)
    assert json.loads(files[0].read_text())["settings"]["fingerprint"] == encoder.fingerprint

    class Unread(ShortPassages):
        def load_data(self, **_: Any) -> None:
            raise AssertionError("a finished task was read again")

    assert run_published(encoder, [Unread()], tmp_path, **options).scores == report.scores[:1]


def test_two_models_of_one_name_do_not_share_results(encoder: LandmarkEncoder, tiny_model: Path) -> None:
    other = LandmarkEncoder.from_pretrained(tiny_model, max_seq_length=64, granularity=32, device="cpu")
    ours, theirs = (mteb_model(each, str(tiny_model), device="cpu").mteb_model_meta for each in (encoder, other))
    assert ours.name == theirs.name == f"{tiny_model.parent.name}/{tiny_model.name}"
    assert ours.revision != theirs.revision


@pytest.mark.parametrize("name", BENCHMARKS)
def test_every_benchmark_is_one_that_mteb_has(name: str) -> None:
    found = published_tasks([name])
    sizes = {"msmarco": 1, "beir": 15, "mteb-en": 41, "mldr": 1, "coir": 10, "longembed": 6}
    assert len(found) == sizes[name]


def test_languages_narrow_tasks_and_leave_mtebs_own_alone() -> None:
    (everything,), (english,) = published_tasks(["mldr"]), published_tasks(["mldr"], ["eng"])
    assert (len(everything.hf_subsets), english.hf_subsets) == (13, ["en"])
    assert english.eval_splits == ["test"]
    whole = {task.metadata.name: task.hf_subsets for task in mteb.get_benchmark("MTEB(eng, v2)").tasks}
    again = {task.metadata.name: task.hf_subsets for task in published_tasks(["mteb-en"], ["eng"])}
    assert again == whole
    with pytest.raises(ConfigError, match="no task of msmarco has a part in fra"):
        published_tasks(["msmarco"], ["fra"])


def test_an_unknown_name_is_met_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="no benchmark or task 'longembd'; near: 'longembed'"):
        published_tasks(["longembd"])


def test_from_the_command_line(tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lmk_embed.evaluation.published.published_tasks", lambda names, languages: [Similar()])
    command = ["benchmark", "mine", "--model", str(tiny_model), "--device", "cpu", "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    assert "| Similar | STS | cosine_spearman |" in result.output
    assert (tmp_path / "out" / "benchmark.json").exists()

    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("lmk_embed.evaluation.published.run_published", interrupted)
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 130
    assert "run the same command again" in result.output
