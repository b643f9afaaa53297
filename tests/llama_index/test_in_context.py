"""LMKEmbedding behind LMKNodeParser: vectors in context are kept, or their loss is told."""

from __future__ import annotations

import json
import uuid
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import chromadb
import numpy as np
import pytest
from llama_index.core import Document, StorageContext, VectorStoreIndex
from llama_index.core.ingestion import IngestionPipeline
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.schema import BaseNode, TextNode, TransformComponent
from llama_index.core.storage.docstore import SimpleDocumentStore
from llama_index.core.vector_stores import SimpleVectorStore
from llama_index.vector_stores.chroma import ChromaVectorStore

from llama_index.embeddings.lmk import LMKEmbedding, LMKNodeParser

Counted = Callable[..., tuple[LMKEmbedding, Any]]

LEASE = "The tenant is Mrs Moss. She pays 900 a month. Dogs are allowed. The heating is serviced in May. " * 3


def documents() -> list[Document]:
    return [
        Document(text=f"Number {n}. " + LEASE, id_=f"doc-{n}", metadata={"file": f"{n}.txt"}) for n in range(3)
    ]


def vectors(nodes: Sequence[BaseNode]) -> dict[str, list[float] | None]:
    return {node.node_id: node.embedding for node in nodes}


def alone(embedding: LMKEmbedding, nodes: Sequence[BaseNode]) -> list[list[float]]:
    """Embed copies as LlamaIndex's base class would."""
    bare = [TextNode(text=node.get_content(), metadata=node.metadata) for node in nodes]
    return [node.embedding or [] for node in embedding(bare)]


@pytest.fixture
def parser(embedding: LMKEmbedding) -> LMKNodeParser:
    return LMKNodeParser(embed_model=embedding)


@pytest.fixture(autouse=True)
def no_warnings() -> Iterator[None]:
    """Only where a test waits for it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="LMKNodeParser embedded")
        yield


class TestKept:
    def test_in_a_pipeline_with_its_cache(self, counted: Counted, tmp_path: Path) -> None:
        embedding, backend = counted()
        parser = LMKNodeParser(embed_model=embedding)
        expected = vectors(parser(documents()))
        backend.passes = 0
        parser(documents())
        once = backend.passes
        pipeline = IngestionPipeline(transformations=[parser, embedding])
        backend.passes = 0
        for _ in range(2):
            assert vectors(pipeline.run(documents=documents())) == expected
        assert backend.passes == once, "one reading of the documents, none of the nodes, none for the cache"
        pipeline.persist(str(tmp_path))
        another = IngestionPipeline(transformations=[parser, embedding])
        another.load(str(tmp_path))
        another.transformations = [parser, embedding.model_copy(update={"embed_batch_size": 7})]
        assert vectors(another.run(documents=documents())) == expected, "nodes of the cache, not yet embedded"

    async def test_asynchronously(self, parser: LMKNodeParser, embedding: LMKEmbedding) -> None:
        nodes = await IngestionPipeline(transformations=[parser, embedding]).arun(documents=documents())
        assert vectors(nodes).keys() == vectors(parser(documents())).keys()
        np.testing.assert_allclose(
            [node.embedding for node in nodes], [node.embedding for node in parser(documents())], atol=1e-5
        )

    def test_in_worker_processes(self, parser: LMKNodeParser, embedding: LMKEmbedding) -> None:
        pipeline = IngestionPipeline(transformations=[parser, embedding])
        found = vectors(pipeline.run(documents=documents(), num_workers=2))
        for node_id, vector in vectors(parser(documents())).items():
            np.testing.assert_allclose(found[node_id], vector, atol=1e-5)

    def test_by_an_embedding_that_was_made_apart(self, parser: LMKNodeParser, tiny_model: Path) -> None:
        same = LMKEmbedding(model_name=str(tiny_model), granularity=16, embed_batch_size=3)
        nodes = parser(documents())
        before = vectors(nodes)
        assert vectors(same(nodes)) == before

    def test_for_joined_chunks(self, embedding: LMKEmbedding) -> None:
        nodes = LMKNodeParser(embed_model=embedding, max_tokens=40)(documents())
        before = vectors(nodes)
        assert vectors(embedding(nodes)) == before

    def test_when_a_step_between_adds_metadata(self, parser: LMKNodeParser, embedding: LMKEmbedding) -> None:
        class Title(TransformComponent):
            def __call__(self, nodes: Sequence[BaseNode], **kwargs: Any) -> Sequence[BaseNode]:
                for node in nodes:
                    node.metadata["title"] = "Lease"
                return nodes

        nodes = IngestionPipeline(transformations=[parser, Title(), embedding]).run(documents=documents())
        assert nodes[0].metadata == {"file": "0.txt", "title": "Lease"}
        assert vectors(nodes) == vectors(parser(documents()))

    @pytest.mark.parametrize("behind", [True, False])
    def test_in_an_index_from_documents(
        self, parser: LMKNodeParser, embedding: LMKEmbedding, behind: bool
    ) -> None:
        steps: list[TransformComponent] = [parser, embedding] if behind else [parser]
        store = SimpleVectorStore()
        VectorStoreIndex.from_documents(
            documents(),
            transformations=steps,
            embed_model=embedding,
            storage_context=StorageContext.from_defaults(vector_store=store),
        )
        assert store.data.embedding_dict == vectors(parser(documents()))

    def test_through_upserts_into_chroma(self, parser: LMKNodeParser, embedding: LMKEmbedding) -> None:
        collection = chromadb.EphemeralClient().create_collection(f"nodes-{uuid.uuid4()}")
        pipeline = IngestionPipeline(
            transformations=[parser, embedding],
            docstore=SimpleDocumentStore(),
            vector_store=ChromaVectorStore(chroma_collection=collection),
        )
        for _ in range(2):
            pipeline.run(documents=documents())
        rows = collection.get(include=["embeddings", "metadatas"])
        expected = vectors(parser(documents()))
        assert rows["metadatas"] is not None
        assert rows["embeddings"] is not None
        assert set(rows["ids"]) == set(expected)
        for node_id, vector in zip(rows["ids"], rows["embeddings"], strict=True):
            np.testing.assert_allclose(vector, expected[node_id], atol=1e-6)
        assert not [key for row in rows["metadatas"] for key in row if key.startswith("lmk")], "no key of ours"

    def test_the_callers_document_is_not_written_to(self, parser: LMKNodeParser) -> None:
        (document, *_) = documents()
        before = json.dumps(document.to_dict())
        nodes = parser([document])
        assert json.dumps(document.to_dict()) == before
        assert {node.metadata["file"] for node in nodes} == {"0.txt"}
        assert all(len(node.metadata) == 1 for node in nodes)


class TestLost:
    """What cannot be kept is embedded as by any embedding of LlamaIndex, and that is told."""

    @pytest.mark.parametrize("other", [{"granularity": 8}, {"query_prompt": "query: "}])
    def test_other_settings(self, parser: LMKNodeParser, tiny_model: Path, other: dict[str, Any]) -> None:
        embedding = LMKEmbedding(model_name=str(tiny_model), **({"granularity": 16} | other))
        pipeline = IngestionPipeline(transformations=[parser, embedding])
        with pytest.warns(UserWarning, match="each alone.*give the parser this embed_model") as told:
            nodes = pipeline.run(documents=documents())
        assert len([each for each in told if "each alone" in str(each.message)]) == 1
        np.testing.assert_allclose([node.embedding for node in nodes], alone(embedding, nodes), atol=1e-5)

    async def test_a_text_that_has_changed(self, parser: LMKNodeParser, embedding: LMKEmbedding) -> None:
        (first, *others) = parser(documents())
        before = vectors(others)
        first.set_content("Something else.")
        with pytest.warns(UserWarning, match="their text has changed"):
            await embedding.acall([first, *others])
        np.testing.assert_allclose([first.embedding], alone(embedding, [first]), atol=1e-5)
        assert vectors(others) == before

    def test_a_splitter_behind_the_parser(self, parser: LMKNodeParser, embedding: LMKEmbedding) -> None:
        """It hands the vector of a node on to all the pieces it cuts from the node."""
        joined = LMKNodeParser(embed_model=embedding, max_tokens=200)
        splitter = SentenceSplitter(chunk_size=20, chunk_overlap=0, include_metadata=False)
        with pytest.warns(UserWarning, match="each alone"):
            nodes = IngestionPipeline(transformations=[joined, splitter, embedding]).run(documents=documents())
        np.testing.assert_allclose([node.embedding for node in nodes], alone(embedding, nodes), atol=1e-5)


class TestEmbeddedAsEver:
    def test_nodes_without_a_vector(self, parser: LMKNodeParser, embedding: LMKEmbedding) -> None:
        nodes = parser(documents())
        for node in nodes:
            node.embedding = None  # as an index gives them back
        np.testing.assert_allclose(
            [node.embedding for node in embedding(nodes)], alone(embedding, nodes), atol=1e-5
        )

    def test_vectors_of_others(self, embedding: LMKEmbedding) -> None:
        node = TextNode(text="Dogs are allowed.", embedding=[1.0] * 32)
        assert embedding([node])[0].embedding == embedding.get_text_embedding("Dogs are allowed.")
