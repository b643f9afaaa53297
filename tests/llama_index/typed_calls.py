"""Calls as users write them; mypy --strict has to accept each, and to know what comes back.

Never run, only type-checked, by test_typing.py.
"""

from pathlib import Path
from typing import assert_type

from llama_index.core import Document, Settings, VectorStoreIndex
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.ingestion import IngestionPipeline
from llama_index.core.node_parser import NodeParser
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.retrievers import BaseRetriever
from llama_index.core.schema import BaseNode, NodeWithScore
from llama_index.core.storage.kvstore import SimpleKVStore
from llama_index.core.vector_stores import MetadataFilter, MetadataFilters
from sentence_transformers import SentenceTransformer

from chroma_lmk import LandmarkStore
from llama_index.embeddings.lmk import LMKEmbedding, LMKNodeParser, LMKRetriever
from lmk_embed import LandmarkEncoder
from sentence_transformers_lmk import LandmarkTransformer, save_sentence_transformer, to_sentence_transformer


def embedding() -> BaseEmbedding:
    made = LMKEmbedding(
        model_name="org/model",
        device="cuda",
        dtype="bfloat16",
        granularity=128,
        boundaries="markdown",
        query_prompt="query: ",
        embed_batch_size=64,
        embeddings_cache=SimpleKVStore(),
    )
    assert_type(made.encoder, LandmarkEncoder)
    assert_type(LMKEmbedding.from_dict(made.to_dict()), LMKEmbedding)
    assert_type(LMKEmbedding.from_encoder(LandmarkEncoder.from_pretrained()), LMKEmbedding)
    assert_type(made.get_text_embedding_batch(["a", "b"]), list[list[float]])
    Settings.embed_model = made
    return made


async def later(made: LMKEmbedding) -> None:
    assert_type(await made.aget_text_embedding_batch(["a"]), list[list[float]])
    assert_type(await made.aencoder(), LandmarkEncoder)


def nodes(made: LMKEmbedding) -> NodeParser:
    parser = LMKNodeParser(embed_model=made, max_tokens=256, id_func=lambda i, doc: f"{doc.node_id}#{i}")
    assert_type(parser.get_nodes_from_documents([Document(text="text")]), list[BaseNode])
    IngestionPipeline(transformations=[parser, made])
    VectorStoreIndex.from_documents([Document(text="text")], transformations=[LMKNodeParser()])
    return parser


def retriever(store: LandmarkStore) -> BaseRetriever:
    filters = MetadataFilters(filters=[MetadataFilter(key="year", value=2026)])
    found = LMKRetriever(store, similarity_top_k=3, per="passage", filters=filters, max_chars=800)
    LMKRetriever(store, per="document", where={"year": 2026}, document_score="mean", verbose=True)
    LMKRetriever(store, max_tokens=256, where_document={"$contains": "rent"})
    RetrieverQueryEngine.from_args(found)
    assert_type(found.retrieve("query"), list[NodeWithScore])
    return found


def sentence_transformer(encoder: LandmarkEncoder) -> None:
    assert_type(to_sentence_transformer(encoder, device="cpu"), SentenceTransformer)
    save_sentence_transformer(encoder, Path("folder"))
    SentenceTransformer(modules=[LandmarkTransformer.from_pretrained("org/model", granularity=64)])
