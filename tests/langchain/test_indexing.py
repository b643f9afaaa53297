"""LangChain's indexing API: every clean-up mode, and a model that changes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from langchain_core.documents import Document
from langchain_core.indexing import InMemoryRecordManager, aindex, index
from langchain_core.vectorstores import InMemoryVectorStore

from chroma_lmk import drop_store
from langchain_lmk import LandmarkVectorStore, LMKEmbeddings

Cleanup = Literal["incremental", "full", "scoped_full"] | None


def documents(**texts: str) -> list[Document]:
    return [Document(text, metadata={"source": source}) for source, text in texts.items()]


BEFORE = documents(lease="Rent is due on the third day. " * 20, rules="Dogs are allowed.", old="Gone soon.")
AFTER = documents(lease="Rent is due on the first day. " * 10, rules="Dogs are allowed.", new="Just added.")


@pytest.fixture
def records() -> InMemoryRecordManager:
    manager = InMemoryRecordManager("contracts")
    manager.create_schema()
    return manager


@pytest.fixture
def store(embeddings: LMKEmbeddings) -> Iterator[LandmarkVectorStore]:
    with LandmarkVectorStore(embeddings) as opened:
        yield opened


def sources(store: LandmarkVectorStore) -> list[str]:
    return sorted(str(each.metadata["source"]) for each in store.store.documents())


@pytest.mark.parametrize("batch_size", [1, 100])
@pytest.mark.parametrize(
    ("cleanup", "deleted", "left"),
    [
        (None, 0, ["lease", "lease", "new", "old", "rules"]),
        ("incremental", 1, ["lease", "new", "old", "rules"]),
        ("scoped_full", 1, ["lease", "new", "old", "rules"]),
        ("full", 2, ["lease", "new", "rules"]),
    ],
)
def test_every_clean_up_mode(
    store: LandmarkVectorStore,
    records: InMemoryRecordManager,
    cleanup: Cleanup,
    deleted: int,
    left: list[str],
    batch_size: int,
) -> None:
    options: dict[str, Any] = {
        "cleanup": cleanup,
        "source_id_key": "source",
        "key_encoder": store.document_key,
        "batch_size": batch_size,
    }
    first = index(BEFORE, records, store, **options)
    assert first == {"num_added": 3, "num_updated": 0, "num_skipped": 0, "num_deleted": 0}
    assert index(BEFORE, records, store, **options)["num_skipped"] == 3
    second = index(AFTER, records, store, **options)
    assert second == {"num_added": 2, "num_updated": 0, "num_skipped": 1, "num_deleted": deleted}
    assert sources(store) == left


@pytest.mark.parametrize("batch_size", [1, 100])
def test_vectors_do_not_depend_on_batch_neighbours(
    embeddings: LMKEmbeddings, records: InMemoryRecordManager, batch_size: int
) -> None:
    with LandmarkVectorStore(embeddings) as store:
        index(BEFORE, records, store, batch_size=batch_size, key_encoder=store.document_key)
        scores = [score for _, score in store.similarity_search_with_score("Rent", k=50)]
    expected = LandmarkVectorStore.from_documents(BEFORE, embeddings).similarity_search_with_score("Rent", k=50)
    assert scores == pytest.approx([score for _, score in expected], abs=1e-5)


def test_langchains_own_keys_and_forced_updates(
    store: LandmarkVectorStore, records: InMemoryRecordManager
) -> None:
    index(BEFORE, records, store, key_encoder="sha256")
    again = index(BEFORE, records, store, key_encoder="sha256", force_update=True)
    assert again["num_updated"] == 3
    assert len(sources(store)) == 3


async def test_asynchronously(store: LandmarkVectorStore, records: InMemoryRecordManager) -> None:
    done = await aindex(BEFORE, records, store, cleanup="full", key_encoder=store.document_key)
    assert done["num_added"] == 3
    done = await aindex(AFTER, records, store, cleanup="full", key_encoder=store.document_key)
    assert (done["num_added"], done["num_deleted"]) == (2, 2)
    assert sources(store) == ["lease", "new", "rules"]


def test_a_changed_model_is_embedded_again(
    tiny_model: Path, records: InMemoryRecordManager, tmp_path: Path
) -> None:
    """The old collection is refused, so it is dropped; the records then must not say that all is done."""
    for round_, granularity in enumerate((16, 8)):
        embeddings = LMKEmbeddings(model=tiny_model, granularity=granularity)
        if round_:
            drop_store(tmp_path)
        with LandmarkVectorStore(embeddings, persist_directory=tmp_path) as store:
            done = index(BEFORE, records, store, cleanup="full", key_encoder=store.document_key)
            assert (done["num_added"], done["num_skipped"]) == (3, 0)
            assert sources(store) == ["lease", "old", "rules"]
            assert store.store.info.fingerprint == embeddings.fingerprint


def test_langchains_own_keys_skip_a_changed_model(tiny_model: Path, records: InMemoryRecordManager) -> None:
    """Why there is ``document_key``; should this ever fail, it can go."""
    for granularity, added in ((16, 3), (8, 0)):
        store = LandmarkVectorStore(LMKEmbeddings(model=tiny_model, granularity=granularity))
        assert index(BEFORE, records, store, cleanup="full", key_encoder="sha256")["num_added"] == added


def test_a_changed_model_in_a_store_of_langchains(tiny_model: Path, records: InMemoryRecordManager) -> None:
    """A store that knows nothing of models: the same records and the same store, old vectors deleted."""
    kept: dict[str, Any] = {}
    for granularity in (16, 8):
        embeddings = LMKEmbeddings(model=tiny_model, granularity=granularity)
        store = InMemoryVectorStore(embeddings)
        store.store = kept
        done = index(BEFORE, records, store, cleanup="full", key_encoder=embeddings.document_key)
        assert done["num_added"] == 3
    assert len(kept) == 3
    texts = [document.page_content for document in BEFORE]
    expected = dict(zip(texts, embeddings.embed_documents(texts), strict=True))
    assert {row["text"]: row["vector"] for row in kept.values()} == expected


def test_keys_tell_text_metadata_and_model_apart(tiny_model: Path, embeddings: LMKEmbeddings) -> None:
    other = LMKEmbeddings(model=tiny_model, granularity=8)
    keys = [
        embeddings.document_key(Document("ab", metadata={"a": "c"})),
        embeddings.document_key(Document("abc", metadata={"a": ""})),
        embeddings.document_key(Document("ab", metadata={"a": "d"})),
        other.document_key(Document("ab", metadata={"a": "c"})),
    ]
    assert len(set(keys)) == 4
    assert embeddings.document_key(Document("ab", id="x", metadata={"a": "c"})) == keys[0]
