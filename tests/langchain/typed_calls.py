"""Calls as users write them; mypy --strict has to accept each, and to know what comes back.

Never run, only type-checked, by test_typing.py.
"""

from pathlib import Path
from typing import assert_type

import chromadb
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.indexing import InMemoryRecordManager, index
from langchain_core.vectorstores import InMemoryVectorStore, VectorStore, VectorStoreRetriever

from chroma_lmk import LandmarkStore
from langchain_lmk import (
    SPAN_KEY,
    LandmarkRetriever,
    LandmarkTextSplitter,
    LandmarkVectorStore,
    LMKEmbeddings,
    Span,
    span,
)
from lmk_embed import LandmarkEncoder


def embeddings() -> Embeddings:
    made = LMKEmbeddings(
        model=Path("model"), device="cuda", dtype="bfloat16", granularity=128, boundaries="markdown"
    )
    assert_type(made.embed_documents(["text"]), list[list[float]])
    assert_type(made.embed_query("text"), list[float])
    assert_type(made.encoder, LandmarkEncoder)
    assert_type(made.document_key(Document("text")), str)
    assert_type(made.model_copy(update={"granularity": 64}), LMKEmbeddings)
    InMemoryVectorStore(made)
    return LMKEmbeddings.from_encoder(LandmarkEncoder.from_pretrained("org/model"))


async def asynchronous(made: LMKEmbeddings, store: LandmarkVectorStore) -> None:
    assert_type(await made.aembed_documents(["text"]), list[list[float]])
    assert_type(await made.aembed_query("text"), list[float])
    assert_type(await store.aadd_documents([Document("text")]), list[str])
    assert_type(await store.asimilarity_search("query", k=3, per="passage"), list[Document])
    assert_type(await LandmarkRetriever(store=store.store).ainvoke("query"), list[Document])


def vectorstore(made: LMKEmbeddings) -> VectorStore:
    LandmarkVectorStore(made, client=chromadb.HttpClient(), collection_name="contracts", per="document")
    LandmarkVectorStore.from_store(LandmarkStore.open("library.db"), per="passage")
    with LandmarkVectorStore(LMKEmbeddings(), persist_directory="db") as store:
        assert_type(store, LandmarkVectorStore)
        assert_type(store.add_documents([Document("text")], ids=["a"]), list[str])
        assert_type(store.add_texts(["text"], [{"year": 2026}], ids=["a"]), list[str])
        assert_type(store.similarity_search("query", k=3, filter={"year": {"$gt": 2020}}), list[Document])
        assert_type(store.similarity_search_with_score("query", per="document"), list[tuple[Document, float]])
        assert_type(store.similarity_search("query", per="passage", max_tokens=256), list[Document])
        assert_type(store.max_marginal_relevance_search("query", k=3, fetch_k=50), list[Document])
        assert_type(store.get_by_ids(["a"]), list[Document])
        assert_type(store.delete(["a"]), bool)
        assert_type(store.as_retriever(search_type="mmr", search_kwargs={"k": 3}), VectorStoreRetriever)
        assert_type(store.embeddings, LMKEmbeddings | None)
        manager = InMemoryRecordManager("contracts")
        index([Document("text")], manager, store, cleanup="full", key_encoder=store.document_key)
    return LandmarkVectorStore.from_texts(["text"], made, persist_directory="db")


def retriever(store: LandmarkVectorStore) -> None:
    LandmarkRetriever(store=store.store, k=3, per="chunk", filter={"year": 2026}, score_threshold=0.3)
    LandmarkRetriever(store=store.store, max_tokens=256, where_document={"$contains": "rent"})
    opened = LandmarkRetriever.open("library.db", k=3)
    for document in opened.invoke("query", None, k=1):
        assert_type(span(document), Span)
        assert_type(span(document).start, int)
        document.metadata[SPAN_KEY]


def splitter(made: LMKEmbeddings) -> list[Document]:
    return LandmarkTextSplitter(made).split_documents([Document("text")])
