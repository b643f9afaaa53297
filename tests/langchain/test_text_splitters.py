"""LandmarkTextSplitter: the store's chunks, as plain Documents."""

from __future__ import annotations

import pytest
from fakes import fake_encoder
from langchain_core.documents import Document

from langchain_lmk import LandmarkTextSplitter, LandmarkVectorStore, LMKEmbeddings, span

# The second sentence comes twice, so that a search for it would find the wrong place.
TEXT = "Chapter 1\nThis is important.\nChapter 2\nThis is important.\n" * 12


def test_chunks_are_those_of_the_encoder(embeddings: LMKEmbeddings) -> None:
    chunks = LandmarkTextSplitter(embeddings).create_documents([TEXT])
    expected = embeddings.encoder.encode_document(TEXT).chunks
    assert [(c.metadata["start_index"], c.metadata["end_index"], c.page_content) for c in chunks] == [
        (chunk.start, chunk.end, chunk.text) for chunk in expected
    ]
    assert LandmarkTextSplitter(embeddings).split_text(TEXT) == [chunk.text for chunk in expected]


def test_chunks_are_those_of_the_vector_store(embeddings: LMKEmbeddings) -> None:
    with LandmarkVectorStore.from_texts([TEXT], embeddings) as store:
        stored = {(span(found).start, span(found).end) for found in store.similarity_search("important", k=500)}
    chunks = LandmarkTextSplitter(embeddings).create_documents([TEXT])
    assert {(c.metadata["start_index"], c.metadata["end_index"]) for c in chunks} == stored


def test_the_model_does_not_run() -> None:
    encoder, backend = fake_encoder()
    LandmarkTextSplitter(LMKEmbeddings.from_encoder(encoder)).split_text(TEXT)
    assert backend.batches == []


async def test_documents_in_documents_out(embeddings: LMKEmbeddings) -> None:
    splitter = LandmarkTextSplitter(embeddings)
    given = [Document(TEXT, metadata={"tags": ["a"]}), Document(" \n"), Document("Short.")]
    chunks = splitter.split_documents(given)
    assert chunks == list(splitter.transform_documents(given))
    assert chunks == list(await splitter.atransform_documents(given))
    assert chunks[-1] == Document("Short.", metadata={"start_index": 0, "end_index": 6})
    chunks[0].metadata["tags"].append("b")
    assert given[0].metadata == {"tags": ["a"]}
    assert chunks[1].metadata["tags"] == ["a"]


def test_texts_and_metadata_must_match(embeddings: LMKEmbeddings) -> None:
    with pytest.raises(ValueError, match="zip"):
        LandmarkTextSplitter(embeddings).create_documents(["a", "b"], [{}])
