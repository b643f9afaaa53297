"""A landmark model in ``mteb.evaluate``, on a retrieval task that is made here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mteb
import pytest
from datasets import Dataset
from mteb.abstasks.retrieval import AbsTaskRetrieval
from mteb.abstasks.task_metadata import TaskMetadata

from lmk_embed import LandmarkEncoder
from sentence_transformers_lmk import to_sentence_transformer

FILLER = "The weather was mild and nobody wrote about it. " * 30
CORPUS = {
    "pumps": "Check the oil of the pump each week.",
    "pets": "Dogs and cats are allowed in every flat.",
    "trains": "Tickets are sold on board of the train.",
}


class LongDocuments(AbsTaskRetrieval):
    """Documents longer than the row; each answers one query."""

    metadata = TaskMetadata(
        name="LongDocuments",
        dataset={"path": "local", "revision": "1"},
        description="Three documents, three questions.",
        type="Retrieval",
        category="t2t",
        modalities=["text"],
        eval_splits=["test"],
        eval_langs=["eng-Latn"],
        main_score="ndcg_at_10",
    )

    def load_data(self, **kwargs: Any) -> None:
        self.dataset = {
            "default": {
                "test": {
                    "corpus": Dataset.from_list(
                        [{"id": k, "text": FILLER + v + FILLER, "title": ""} for k, v in CORPUS.items()]
                    ),
                    "queries": Dataset.from_list([{"id": k, "text": v} for k, v in CORPUS.items()]),
                    "relevant_docs": {k: {k: 1} for k in CORPUS},
                    "top_ranked": None,
                }
            }
        }
        self.data_loaded = True


def test_mteb_evaluates_with_the_roles_of_the_encoder(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    encoder = LandmarkEncoder.from_pretrained(
        tiny_model, max_seq_length=128, query_prompt="query: ", document_prompt="passage: "
    )
    model = to_sentence_transformer(encoder, device="cpu")
    seen: set[tuple[str | None, str | None]] = set()
    preprocess = model[0].preprocess

    def spy(inputs: Any, prompt: str | None = None, task: str | None = None, **kwargs: Any) -> Any:
        seen.add((task, prompt))
        return preprocess(inputs, prompt, task=task, **kwargs)

    monkeypatch.setattr(model[0], "preprocess", spy)
    result = mteb.evaluate(model, LongDocuments(), cache=None, co2_tracker=False, show_progress_bar=False)
    (scores,) = result.task_results
    assert 0 < scores.get_score() <= 1
    assert seen == {("query", "query: "), ("document", "passage: ")}
