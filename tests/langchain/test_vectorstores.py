"""LandmarkVectorStore: LangChain's own suite, long Documents, and what the suite does not look at."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import chromadb
import pytest
from chroma_fakes import FakeEncoder, VectorEncoder
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_tests.integration_tests import VectorStoreIntegrationTests

from chroma_lmk import FingerprintMismatchError, LandmarkStore, QueryError
from heartbeat import Heartbeat
from langchain_lmk import SPAN_KEY, LandmarkVectorStore, LMKEmbeddings, span

LEASE = (
    "Rent is due on the third working day of each month. It is paid by bank transfer. "
    "Dogs and cats are allowed in every flat, other animals need consent. "
    "The heating is serviced in September, and the chimney in March. "
    "The deposit is three months of rent. It is returned within ten days after moving out."
)


class TestInMemory(VectorStoreIntegrationTests):
    @pytest.fixture
    def vectorstore(self, embeddings: LMKEmbeddings) -> Iterator[LandmarkVectorStore]:
        with LandmarkVectorStore(embeddings) as store:
            yield store


class TestOnDisk(VectorStoreIntegrationTests):
    @pytest.fixture
    def vectorstore(self, bundled: LMKEmbeddings, tmp_path: Path) -> Iterator[LandmarkVectorStore]:
        with LandmarkVectorStore(bundled, persist_directory=tmp_path / "db") as store:
            yield store


@pytest.fixture
def lease(vectorstore: LandmarkVectorStore) -> LandmarkVectorStore:
    vectorstore.add_documents([Document(LEASE, id="lease", metadata={"year": 2026, "tags": ["flat", "rent"]})])
    return vectorstore


def plane(*lines: str) -> LandmarkVectorStore:
    """A store whose chunks are lines that say their own two-dimensional vector; one Document a line."""
    store = LandmarkStore(chromadb.EphemeralClient(), f"plane-{time.time_ns()}", VectorEncoder(dimension=2))
    made = LandmarkVectorStore.from_store(store)
    made.add_texts(list(lines), ids=[line.split()[-1] for line in lines])
    return made


def names(documents: list[Document]) -> list[str]:
    return [document.page_content.split()[-1] for document in documents]


# One long Document in, chunks, passages and Documents out


def test_one_long_document_is_found_by_its_chunks(lease: LandmarkVectorStore) -> None:
    found = lease.similarity_search_with_score("When is the heating serviced?", k=3)
    assert len(found) == 3
    assert lease.store.count() > 3
    for document, score in found:
        place = span(document)
        assert LEASE[place.start : place.end] == document.page_content
        assert (place.doc_id, place.score) == ("lease", score)
        assert {key: value for key, value in document.metadata.items() if key != SPAN_KEY} == {
            "year": 2026,
            "tags": ["flat", "rent"],
        }
    assert len({document.id for document, _ in found}) == 3


def test_passages_join_chunks_up_to_a_budget(lease: LandmarkVectorStore) -> None:
    (passage,) = lease.similarity_search("heating", k=1, per="passage", max_chars=200)
    place = span(passage)
    assert LEASE[place.start : place.end] == passage.page_content
    assert 100 < len(passage.page_content) <= 200
    best = place.matches[0]
    assert place.start <= best[0] < best[1] <= place.end
    assert best[2] == place.score


def test_a_document_comes_back_as_it_was_added(lease: LandmarkVectorStore) -> None:
    expected = Document(LEASE, id="lease", metadata={"year": 2026, "tags": ["flat", "rent"]})
    assert lease.similarity_search("heating", per="document") == [expected]
    assert lease.get_by_ids(["lease", "unknown"]) == [expected]


def test_what_covers_all_chunks_is_the_document(lease: LandmarkVectorStore) -> None:
    """Also a passage, and with the white space around it."""
    lease.add_documents([Document("\n  Cellar.\n", id="short")])
    assert Document("\n  Cellar.\n", id="short") in lease.similarity_search("Cellar.", k=1)
    passages = lease.similarity_search("heating", k=2, per="passage", max_chars=len(LEASE))
    assert {passage.id: passage for passage in passages}["lease"] == lease.get_by_ids(["lease"])[0]


def test_the_store_can_say_what_a_search_returns(embeddings: LMKEmbeddings) -> None:
    with LandmarkVectorStore(embeddings, per="document") as store:
        store.add_texts([LEASE], ids=["lease"])
        assert store.similarity_search("heating")[0].page_content == LEASE
        assert len(store.similarity_search("heating", per="chunk")) == 4


def test_k_documents_although_one_owns_the_nearest_chunks(vectorstore: LandmarkVectorStore) -> None:
    crowd = " ".join(f"The heating is serviced in year {year} of the lease." for year in range(50))
    vectorstore.add_texts([crowd, "The chimney is swept.", "Dogs are allowed."], ids=["a", "b", "c"])
    found = vectorstore.similarity_search("The heating is serviced.", k=3, per="document")
    assert {document.id for document in found} == {"a", "b", "c"}


def test_parts_are_told_from_what_the_caller_added(lease: LandmarkVectorStore) -> None:
    """A part cannot go back into a store by mistake: its span would lie."""
    with pytest.raises(ValueError, match=SPAN_KEY):
        lease.add_documents(lease.similarity_search("heating", k=1))


# Searching


def test_filters_apply_before_ranking(vectorstore: LandmarkVectorStore) -> None:
    vectorstore.add_texts(["Rent is due.", "Rent is late."], [{"year": 2025}, {"year": 2026}])
    assert vectorstore.similarity_search("Rent is due.", k=4, filter={"year": {"$gt": 2025}})[0].metadata == {
        "year": 2026
    }
    assert len(vectorstore.similarity_search("Rent", where_document={"$contains": "late"})) == 1


@pytest.mark.parametrize("per", ["chunk", "passage"])
@pytest.mark.parametrize("max_tokens", [1, 40, 10_000])
async def test_coarser_spans_are_those_of_the_store(
    lease: LandmarkVectorStore, embeddings: LMKEmbeddings, per: Any, max_tokens: int
) -> None:
    size: dict[str, Any] = {"per": per, "max_tokens": max_tokens, "max_chars": 200}
    hits = lease.store.search("heating", 4, **size)
    expected = [(hit.start, hit.end, pytest.approx(hit.score)) for hit in hits]
    scored = lease.similarity_search_with_score("heating", **size)
    assert [(span(found).start, span(found).end, score) for found, score in scored] == expected
    documents = [document for document, _ in scored]
    assert len({document.id for document in documents}) == len(documents)
    assert lease.similarity_search("heating", **size) == documents
    assert await lease.asimilarity_search("heating", **size) == documents
    assert lease.as_retriever(search_kwargs=size).invoke("heating") == documents
    assert lease.similarity_search_by_vector(embeddings.embed_query("heating"), **size) == documents
    (first,) = lease.max_marginal_relevance_search("heating", k=1, **size)
    assert first == documents[0]


def test_spans_at_search_time_are_those_of_an_index_of_that_size(
    lease: LandmarkVectorStore, embeddings: LMKEmbeddings
) -> None:
    merged = embeddings.encoder.encode_document(LEASE).merge(40).chunks
    assert 1 < len(merged) < lease.store.count()
    found = lease.similarity_search("heating", k=50, max_tokens=40)
    assert {(span(each).start, span(each).end) for each in found} == {(each.start, each.end) for each in merged}


def test_an_unknown_argument_is_refused_rather_than_ignored(lease: LandmarkVectorStore) -> None:
    with pytest.raises(TypeError, match="fliter"):
        lease.similarity_search("rent", fliter={"year": 2025})


def test_scores_are_cosines_in_every_space(embeddings: LMKEmbeddings) -> None:
    store = plane("1 0 same", "0 1 orthogonal", "-1 0 opposite")
    assert [round(score, 5) for _, score in store.similarity_search_with_score("1 0 query", k=3)] == [1, 0, -1]


@pytest.mark.filterwarnings("error")
def test_relevance_scores_are_between_zero_and_one() -> None:
    store = plane("1 0 same", "1 1 near", "0 1 orthogonal", "-1 0 opposite")
    scores = [score for _, score in store.similarity_search_with_relevance_scores("1 0 query", k=4)]
    assert scores == pytest.approx([1, 0.5**0.5, 0, 0], abs=1e-5)
    retriever = store.as_retriever(
        search_type="similarity_score_threshold", search_kwargs={"score_threshold": 0.7, "k": 4}
    )
    assert names(retriever.invoke("1 0 query")) == ["same", "near"]


def test_mmr_returns_the_order_of_choice() -> None:
    store = plane("1 0.01 first", "1 0.02 twin", "1 0.03 triplet", "0.8 -0.6 other", "0 1 far")
    by_similarity = names(store.similarity_search("1 0 query", k=3))
    assert by_similarity == ["first", "twin", "triplet"]
    chosen = names(store.max_marginal_relevance_search("1 0 query", k=3, fetch_k=5, lambda_mult=0.5))
    assert chosen[:2] == ["first", "other"]
    retriever = store.as_retriever(search_type="mmr", search_kwargs={"k": 3, "fetch_k": 5, "lambda_mult": 1.0})
    assert names(retriever.invoke("1 0 query")) == by_similarity


@pytest.mark.parametrize("per", ["chunk", "passage", "document"])
def test_mmr_works_at_every_size(lease: LandmarkVectorStore, per: str) -> None:
    lease.add_texts(["Bicycles belong in the cellar."])
    found = lease.max_marginal_relevance_search("heating", k=2, per=per, max_chars=100)
    assert len(found) == 2


async def test_mmr_and_vectors_asynchronously(lease: LandmarkVectorStore, embeddings: LMKEmbeddings) -> None:
    vector = embeddings.embed_query("heating")
    assert await lease.amax_marginal_relevance_search("heating", k=1) == lease.similarity_search("heating", k=1)
    assert await lease.asimilarity_search_by_vector(vector, k=2) == lease.similarity_search("heating", k=2)
    assert await lease.amax_marginal_relevance_search_by_vector(vector, k=2)


@pytest.mark.parametrize(
    "search",
    [
        {"search_type": "similarity", "search_kwargs": {"k": 2, "per": "passage", "max_chars": 150}},
        {"search_type": "similarity_score_threshold", "search_kwargs": {"k": 4, "score_threshold": 0.1}},
        {"search_type": "mmr", "search_kwargs": {"k": 2, "fetch_k": 4, "filter": {"year": 2026}}},
    ],
)
async def test_its_retrievers_agree_asynchronously(lease: LandmarkVectorStore, search: dict[str, Any]) -> None:
    retriever = lease.as_retriever(**search)
    found = retriever.invoke("heating")
    assert found
    assert await retriever.ainvoke("heating") == found


def test_an_empty_store_and_a_blank_query(vectorstore: LandmarkVectorStore) -> None:
    assert vectorstore.max_marginal_relevance_search("rent") == []
    assert vectorstore.as_retriever().invoke("rent") == []
    with pytest.raises(QueryError, match="blank"):
        vectorstore.similarity_search(" ")


def test_k_of_a_retriever_can_be_given_per_call(lease: LandmarkVectorStore) -> None:
    retriever = lease.as_retriever(search_kwargs={"k": 3})
    assert len(retriever.invoke("rent")) == 3
    assert len(retriever.invoke("rent", k=1)) == 1
    assert retriever.tags == ["LandmarkVectorStore", "LMKEmbeddings"]


# Ids, adding and deleting


def test_ids_that_are_given_win_over_those_of_documents(vectorstore: LandmarkVectorStore) -> None:
    documents = [Document("one", id="a"), Document("two", id="b")]
    first, second = vectorstore.add_documents(documents, ids=["x", None])
    assert first == "x"
    assert second not in ("a", "b")
    assert documents[0].id == "a"


def test_ids_and_documents_must_match(vectorstore: LandmarkVectorStore) -> None:
    with pytest.raises(ValueError, match="got 1 ids for 2 documents"):
        vectorstore.add_texts(["one", "two"], ids=["x"])
    with pytest.raises(ValueError, match="twice"):
        vectorstore.add_texts(["one", "two"], ids=["x", "x"])
    with pytest.raises(ValueError, match="zip"):
        vectorstore.add_texts(["one", "two"], [{}])
    with pytest.raises(TypeError, match="put it into a list"):
        vectorstore.add_texts("one")
    assert vectorstore.store.count() == 0


async def test_iterators_are_added(vectorstore: LandmarkVectorStore) -> None:
    """The inherited method reads an iterator twice and adds nothing."""
    assert len(vectorstore.add_texts(text for text in ["one", "two"])) == 2
    assert len(await vectorstore.aadd_texts(text for text in ["three"])) == 1
    assert vectorstore.store.count("document") == 3


def test_a_shorter_document_with_fewer_keys_replaces_a_longer_one(lease: LandmarkVectorStore) -> None:
    lease.add_documents([Document("Short now.", id="lease", metadata={"year": 2027})])
    assert lease.store.count() == 1
    assert lease.get_by_ids(["lease"])[0].metadata == {"year": 2027}


def test_what_is_blank_is_reported(vectorstore: LandmarkVectorStore) -> None:
    with pytest.warns(UserWarning, match="1 of 2 documents are blank and not stored, among them 'b'"):
        assert vectorstore.add_texts(["text", " \n"], ids=["a", "b"]) == ["a", "b"]


def test_metadata_that_would_change_is_refused_at_once(vectorstore: LandmarkVectorStore) -> None:
    with pytest.raises(ValueError, match=r"'size': tuple[\s\S]*'tags': set"):
        vectorstore.add_texts(["a", "b"], [{"size": (1, 2)}, {"tags": {1}}])


def test_metadata_comes_back_with_its_values_and_types(vectorstore: LandmarkVectorStore) -> None:
    metadata = {"none": None, "nested": {"a": [1, "b"]}, "ratio": 0.1, "flag": True, "big": 2**70}
    vectorstore.add_texts(["text"], [metadata], ids=["a"])
    assert vectorstore.similarity_search("text", k=1) == [Document("text", id="a", metadata=metadata)]


def test_deleting(lease: LandmarkVectorStore) -> None:
    lease.add_texts(["one", "two"], ids=["1", "2"])
    assert lease.delete(["1", "unknown"])
    assert lease.delete([])
    assert {each.id for each in lease.store.documents()} == {"lease", "2"}
    with pytest.raises(TypeError, match="where"):
        lease.delete(where={"year": 2026})
    assert lease.delete()
    assert lease.store.count() == 0


# Making and opening


def test_from_documents_keeps_what_ids_there_are(embeddings: LMKEmbeddings) -> None:
    documents = [Document("one", id="a"), Document("two")]
    with LandmarkVectorStore.from_documents(documents, embeddings) as store:
        ids = [each.id for each in store.store.documents()]
    assert len(ids) == 2
    assert "a" in ids


async def test_from_texts_asynchronously(embeddings: LMKEmbeddings) -> None:
    store = await LandmarkVectorStore.afrom_texts(["one"], embeddings, [{"n": 1}], ids=["a"])
    assert await store.aget_by_ids(["a"]) == [Document("one", id="a", metadata={"n": 1})]


def test_a_store_that_could_not_be_filled_is_closed(embeddings: LMKEmbeddings, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="twice"):
        LandmarkVectorStore.from_texts(["a", "b"], embeddings, ids=["x", "x"], persist_directory=tmp_path)
    with LandmarkVectorStore(embeddings, persist_directory=tmp_path) as store:
        assert store.add_texts(["a"], ids=["x"]) == ["x"]


def test_stores_in_memory_are_apart(embeddings: LMKEmbeddings) -> None:
    LandmarkVectorStore.from_texts(["one"], embeddings)
    assert LandmarkVectorStore(embeddings).similarity_search("one") == []


def test_a_store_on_disk_is_found_again_and_refuses_another_model(tiny_model: Path, tmp_path: Path) -> None:
    embeddings = LMKEmbeddings(model=tiny_model)
    LandmarkVectorStore.from_texts(["one"], embeddings, ids=["a"], persist_directory=tmp_path).close()
    with LandmarkVectorStore(embeddings, persist_directory=tmp_path) as store:
        assert store.get_by_ids(["a"])
    with pytest.raises(FingerprintMismatchError):
        LandmarkVectorStore(LMKEmbeddings(model=tiny_model, granularity=8), persist_directory=tmp_path)
    with LandmarkStore.open(tmp_path) as opened:
        reopened = LandmarkVectorStore.from_store(opened)
        assert reopened.embeddings is not None
        assert reopened.similarity_search("one")[0].id == "a"


def test_other_embeddings_are_refused() -> None:
    with pytest.raises(TypeError, match="needs LMKEmbeddings, got DeterministicFakeEmbedding"):
        LandmarkVectorStore(DeterministicFakeEmbedding(size=6))


def test_a_client_of_ones_own(embeddings: LMKEmbeddings, tmp_path: Path) -> None:
    client = chromadb.PersistentClient(path=str(tmp_path))
    with LandmarkVectorStore(embeddings, client=client, collection_name="mine") as store:
        store.add_texts(["one"])
    assert client.get_collection("mine").count() == 1
    with pytest.raises(TypeError, match="not both"):
        LandmarkVectorStore(embeddings, client=client, persist_directory=tmp_path)


# Event loops


class SlowEncoder(FakeEncoder):
    """Takes as long for a document as a real encoder."""

    def encode_document(self, text: str) -> Any:
        time.sleep(0.04)
        return super().encode_document(text)

    def encode_queries(self, texts: list[str]) -> Any:
        time.sleep(0.04)
        return super().encode_queries(texts)


@pytest.fixture
def slow() -> LandmarkVectorStore:
    store = LandmarkStore(chromadb.EphemeralClient(), f"slow-{time.time_ns()}", SlowEncoder())
    return LandmarkVectorStore.from_store(store)


async def test_the_event_loop_stays_alive(slow: LandmarkVectorStore) -> None:
    async with Heartbeat() as pulse:
        await slow.aadd_texts([f"text {index}" for index in range(20)])
        await asyncio.gather(*(slow.asimilarity_search(f"text {index}") for index in range(10)))
    assert pulse.beats > 2 * 20


async def test_cancelling_stops_adding(slow: LandmarkVectorStore) -> None:
    encoder = slow.store.encoder
    assert isinstance(encoder, SlowEncoder)
    task = asyncio.create_task(slow.aadd_texts([f"text {index}" for index in range(500)]))
    while len(encoder.embedded) < 3:
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.sleep(0.2)
    done = len(encoder.embedded)
    await asyncio.sleep(0.2)
    assert len(encoder.embedded) == done < 50
    assert 1 <= slow.store.count("document") <= done
