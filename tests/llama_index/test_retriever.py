"""LMKRetriever: hits of a LandmarkStore in LlamaIndex's query engines."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from llama_index.core import PromptTemplate, QueryBundle
from llama_index.core.llms import MockLLM
from llama_index.core.postprocessor import SimilarityPostprocessor
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.retrievers import QueryFusionRetriever
from llama_index.core.schema import TextNode
from llama_index.core.vector_stores.types import (
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
)

from chroma_lmk import LandmarkStore
from llama_index.embeddings.lmk import LMKRetriever
from llama_index.embeddings.lmk.filters import chroma_where
from lmk_embed import ConfigError, Document, LandmarkEncoder

TEXTS = {
    "pumps": "The pump needs oil. Check the valve each week. Drain the tank in autumn. " * 4,
    "pets": "Cats are allowed. Dogs need permission. Birds may stay in the kitchen. " * 4,
    "trains": "Trains leave at noon. Tickets are sold on board. Bicycles travel free. " * 4,
}


@pytest.fixture
def store(tmp_path: Path, tiny_model: Path) -> Iterator[LandmarkStore]:
    encoder = LandmarkEncoder.from_pretrained(tiny_model, granularity=16)
    with LandmarkStore(tmp_path / "db", "texts", encoder) as opened:
        opened.add(Document(name, text, {"kind": name, "n": n}) for n, (name, text) in enumerate(TEXTS.items()))
        yield opened


@pytest.mark.parametrize("per", ["chunk", "passage", "document"])
def test_nodes_have_exact_spans_source_and_score(store: LandmarkStore, per: Any) -> None:
    found = LMKRetriever(store, similarity_top_k=3, per=per, max_chars=200).retrieve("Are dogs allowed?")
    assert len(found) == 3
    assert [hit.score for hit in found] == sorted((hit.get_score() for hit in found), reverse=True)
    for hit in found:
        assert isinstance(hit.node, TextNode)
        assert hit.node.ref_doc_id is not None
        source = TEXTS[hit.node.ref_doc_id]
        assert source[hit.node.start_char_idx : hit.node.end_char_idx] == hit.text
        assert hit.metadata == {"kind": hit.node.ref_doc_id, "n": list(TEXTS).index(hit.node.ref_doc_id)}
        assert -1 <= hit.get_score() <= 1
    if per == "document":
        assert {hit.node.ref_doc_id for hit in found} == set(TEXTS)


def test_hits_are_those_of_the_store(store: LandmarkStore) -> None:
    found = LMKRetriever(store, similarity_top_k=4).retrieve("oil")
    assert [(n.text, n.score) for n in found] == [(hit.text, hit.score) for hit in store.search("oil", 4)]


def test_every_setting_of_a_search_is_a_setting_of_the_retriever() -> None:
    settings = set(inspect.signature(LandmarkStore.search).parameters) - {"query", "k"}
    assert settings <= set(inspect.signature(LMKRetriever.__init__).parameters)


@pytest.mark.parametrize("per", ["chunk", "passage", "document"])
@pytest.mark.parametrize("max_tokens", [None, 1, 40, 10_000])
async def test_hits_are_those_of_the_store_at_any_size(
    store: LandmarkStore, per: Any, max_tokens: int | None
) -> None:
    search: dict[str, Any] = {"per": per, "max_tokens": max_tokens, "where_document": {"$contains": "tank"}}
    hits = store.search("oil", 4, **search)
    expected = [(hit.doc_id, hit.start, hit.end, hit.text, hit.score) for hit in hits]
    assert {hit.doc_id for hit in hits} == {"pumps"}
    retriever = LMKRetriever(store, similarity_top_k=4, **search)
    for found in (retriever.retrieve("oil"), await retriever.aretrieve("oil")):
        nodes = [each.node for each in found if isinstance(each.node, TextNode)]
        assert [
            (node.ref_doc_id, node.start_char_idx, node.end_char_idx, node.text, each.score)
            for node, each in zip(nodes, found, strict=True)
        ] == expected


def test_more_than_there_is_and_an_empty_store(store: LandmarkStore, tmp_path: Path) -> None:
    assert len(LMKRetriever(store, similarity_top_k=500).retrieve("oil")) == store.count()
    with LandmarkStore(tmp_path / "empty", "texts", store.encoder) as empty:
        assert LMKRetriever(empty).retrieve("oil") == []


def test_filters_come_before_ranking(store: LandmarkStore) -> None:
    filters = MetadataFilters(
        filters=[
            MetadataFilter(key="kind", value=["pumps", "trains"], operator=FilterOperator.IN),
            MetadataFilter(key="n", value=0, operator=FilterOperator.GT),
        ]
    )
    found = LMKRetriever(store, similarity_top_k=50, filters=filters).retrieve("dogs")
    assert {hit.node.ref_doc_id for hit in found} == {"trains"}
    again = LMKRetriever(store, similarity_top_k=50, where=chroma_where(filters)).retrieve("dogs")
    assert [hit.node.node_id for hit in again] == [hit.node.node_id for hit in found]
    with pytest.raises(ConfigError, match="not both"):
        LMKRetriever(store, filters=filters, where={})


def test_filters_nest_and_say_what_chroma_lacks() -> None:
    one = MetadataFilter(key="a", value=1)
    two = MetadataFilter(key="b", value="x", operator=FilterOperator.NE)
    either = MetadataFilters(filters=[one, two], condition=FilterCondition.OR)
    assert chroma_where(MetadataFilters(filters=[one, either])) == {
        "$and": [{"a": {"$eq": 1}}, {"$or": [{"a": {"$eq": 1}}, {"b": {"$ne": "x"}}]}]
    }
    assert chroma_where(MetadataFilters(filters=[MetadataFilters(filters=[])])) is None
    with pytest.raises(ConfigError, match="text_match"):
        chroma_where(
            MetadataFilters(filters=[MetadataFilter(key="a", value="x", operator=FilterOperator.TEXT_MATCH)])
        )
    with pytest.raises(ConfigError, match="not"):
        chroma_where(MetadataFilters(filters=[one], condition=FilterCondition.NOT))


def test_given_vectors_and_several_texts_are_used(store: LandmarkStore) -> None:
    retriever = LMKRetriever(store, similarity_top_k=3)
    vector = store.encoder.encode_queries(["oil"])[0].tolist()
    preset = retriever.retrieve(QueryBundle("something else", embedding=vector))
    assert [n.node_id for n in preset] == [n.node_id for n in retriever.retrieve("oil")]
    several = retriever.retrieve(QueryBundle("q", custom_embedding_strs=["oil", "tank"]))
    mean = store.encoder.encode_queries(["oil", "tank"]).mean(axis=0)
    assert [n.text for n in several] == [hit.text for hit in store.search(mean, 3)]


def test_min_score(store: LandmarkStore) -> None:
    scores = [hit.get_score() for hit in LMKRetriever(store, similarity_top_k=50).retrieve("oil")]
    floor = scores[5]
    found = LMKRetriever(store, similarity_top_k=50, min_score=floor).retrieve("oil")
    assert [hit.score for hit in found] == [score for score in scores if score >= floor]


def test_a_query_engine_with_postprocessors(store: LandmarkStore) -> None:
    engine = RetrieverQueryEngine.from_args(
        LMKRetriever(store, per="passage", similarity_top_k=3, max_chars=120),
        llm=MockLLM(),
        node_postprocessors=[SimilarityPostprocessor(similarity_cutoff=-1.0)],
        text_qa_template=PromptTemplate("{context_str}\nQuestion: {query_str}"),
    )
    answer = engine.query("Are dogs allowed?")
    assert "Question: Are dogs allowed?" in str(answer)
    assert len(answer.source_nodes) == 3
    assert all(node.text in str(answer) for node in answer.source_nodes)


def test_composes_with_other_retrievers(store: LandmarkStore) -> None:
    both = QueryFusionRetriever(
        [LMKRetriever(store), LMKRetriever(store, per="document")],
        llm=MockLLM(),
        num_queries=1,
        use_async=False,
        similarity_top_k=3,
    )
    assert both.retrieve("oil")[0].node.ref_doc_id in TEXTS


async def test_async_does_not_block_and_sync_works_in_a_loop(store: LandmarkStore) -> None:
    class Slow:
        encoder = store.encoder

        def search(self, *args: Any, **kwargs: Any) -> Any:
            time.sleep(0.3)
            return store.search(*args, **kwargs)

    retriever = LMKRetriever(Slow())  # type: ignore[arg-type]
    searching = asyncio.create_task(retriever.aretrieve("oil"))
    beats = 0
    while not searching.done():
        await asyncio.sleep(0.01)
        beats += 1
    assert beats > 5
    found = await searching
    assert [n.node_id for n in found] == [n.node_id for n in LMKRetriever(store).retrieve("oil")]
