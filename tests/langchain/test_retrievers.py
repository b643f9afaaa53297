"""LandmarkRetriever: LangChain's own suite, and every way of calling it."""

from __future__ import annotations

import asyncio
import inspect
from pathlib import Path
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.runnables import RunnablePassthrough
from langchain_tests.integration_tests import RetrieversIntegrationTests

from chroma_lmk import LandmarkStore
from langchain_lmk import LandmarkRetriever, LandmarkVectorStore, LMKEmbeddings, span
from langchain_lmk.results import scored_documents

TEXTS = [f"{subject} of the flat is described here." for subject in ("Heating", "Rent", "Deposit", "Cellar")]
LONG = "The house has four floors and a lift. The lift is checked each spring. The roof was renewed in 2019. " * 8


@pytest.fixture
def store(vectorstore: LandmarkVectorStore) -> LandmarkStore:
    vectorstore.add_texts([*TEXTS, LONG], [{"n": n} for n in range(5)], ids=[*"abcd", "long"])
    return vectorstore.store


class TestStandard(RetrieversIntegrationTests):
    @pytest.fixture(autouse=True)
    def _fill(self, store: LandmarkStore) -> None:
        self.store = store

    @property
    def retriever_constructor(self) -> type[LandmarkRetriever]:
        return LandmarkRetriever

    @property
    def retriever_constructor_params(self) -> dict[str, Any]:
        return {"store": self.store}

    @property
    def retriever_query_example(self) -> str:
        return "How is the flat heated?"


def test_exactly_as_many_as_asked_for_and_available(store: LandmarkStore) -> None:
    retriever = LandmarkRetriever(store=store, k=3, per="document")
    assert len(retriever.invoke("rent")) == 3
    assert len(retriever.invoke("rent", None, k=1)) == 1
    assert len(retriever.invoke("rent", k=50)) == 5


def test_an_empty_store_has_nothing(vectorstore: LandmarkVectorStore) -> None:
    assert LandmarkRetriever(store=vectorstore.store).invoke("rent") == []


def test_passages_with_spans_unless_told_otherwise(store: LandmarkStore) -> None:
    (passage,) = LandmarkRetriever(store=store, k=1, max_chars=150).invoke("lift", filter={"n": 4})
    place = span(passage)
    assert place.doc_id == "long"
    assert LONG[place.start : place.end] == passage.page_content
    assert len(passage.page_content) <= 150


def test_every_field_can_be_given_per_call(store: LandmarkStore) -> None:
    retriever = LandmarkRetriever(store=store)
    assert [each.id for each in retriever.invoke("rent", filter={"n": 1})] == ["b"]
    assert retriever.invoke(TEXTS[1], k=1, per="document")[0].page_content == TEXTS[1]
    assert len(retriever.invoke(TEXTS[1], per="chunk", score_threshold=0.999)) == 1
    assert len(retriever.invoke("rent", per="document", document_score="mean", k=2)) == 2
    with pytest.raises(TypeError, match="topk"):
        retriever.invoke("rent", topk=3)


def test_every_setting_of_a_search_is_a_field() -> None:
    langchains = {"where": "filter", "min_score": "score_threshold"}  # by these names its users know them
    settings = list(inspect.signature(LandmarkStore.search).parameters)[2:]
    assert {langchains.get(name, name) for name in settings} | {"store"} == set(LandmarkRetriever.__annotations__)


@pytest.mark.parametrize("per", ["chunk", "passage", "document"])
@pytest.mark.parametrize("max_tokens", [None, 1, 40, 10_000])
async def test_results_are_those_of_the_store_at_any_size(
    store: LandmarkStore, per: Any, max_tokens: int | None
) -> None:
    hits = store.search("lift", 3, per=per, max_tokens=max_tokens, where_document={"$contains": "lift"})
    expected = [document for document, _ in scored_documents(store, hits, whole=per == "document")]
    assert {span(document).doc_id for document in expected} == {"long"}
    fields: dict[str, Any] = {
        "k": 3,
        "per": per,
        "max_tokens": max_tokens,
        "where_document": {"$contains": "lift"},
    }
    assert LandmarkRetriever(store=store, **fields).invoke("lift") == expected
    assert LandmarkRetriever(store=store).invoke("lift", **fields) == expected
    assert await LandmarkRetriever(store=store).ainvoke("lift", **fields) == expected


@pytest.mark.parametrize(
    "fields", [{"topk": 3}, {"k": 0}, {"per": "page"}, {"store": "library.db"}, {"max_tokens": 0}]
)
def test_impossible_fields_are_refused(store: LandmarkStore, fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="validation error"):
        LandmarkRetriever(**{"store": store, **fields})


async def test_batch_async_and_threads_agree(store: LandmarkStore) -> None:
    retriever = LandmarkRetriever(store=store, k=2)
    expected = [retriever.invoke(text) for text in TEXTS]
    assert retriever.batch(TEXTS) == expected
    assert await retriever.abatch(TEXTS) == expected
    assert await asyncio.gather(*(retriever.ainvoke(text) for text in TEXTS)) == expected
    assert len(await retriever.ainvoke("rent", None, k=1)) == 1


async def test_the_event_loop_is_left_alone(store: LandmarkStore, monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    threads = []
    search = store.search
    monkeypatch.setattr(
        store, "search", lambda *a, **k: threads.append(threading.current_thread()) or search(*a, **k)
    )
    await LandmarkRetriever(store=store).ainvoke("rent")
    assert threads != [threading.main_thread()]
    assert len(threads) == 1


def test_it_is_a_runnable(store: LandmarkStore) -> None:
    def join(documents: list[Document]) -> str:
        return "\n".join(document.page_content for document in documents)

    chain = {"context": LandmarkRetriever(store=store, k=1) | join, "question": RunnablePassthrough()} | (
        RunnablePassthrough()
    )
    assert chain.invoke(TEXTS[2]) == {"context": TEXTS[2], "question": TEXTS[2]}


def test_opening_what_something_else_has_indexed(tiny_model: Path, tmp_path: Path) -> None:
    LandmarkVectorStore.from_texts(TEXTS, LMKEmbeddings(model=tiny_model), persist_directory=tmp_path).close()
    retriever = LandmarkRetriever.open(tmp_path, k=1)
    assert retriever.invoke(TEXTS[3])[0].page_content == TEXTS[3]
    retriever.store.close()
