"""Landmark embeddings in LlamaIndex: an embedding, a node parser that embeds what it cuts, and a retriever."""

from lmk_embed.errors import missing_extra

try:
    from llama_index.embeddings.lmk.embedding import LMKEmbedding
    from llama_index.embeddings.lmk.node_parser import LMKNodeParser, stable_id
    from llama_index.embeddings.lmk.retriever import LMKRetriever
except ModuleNotFoundError as error:
    if not str(error.name).startswith("llama_index.core"):
        raise
    raise missing_extra("llama-index-core", "llama-index") from error

__all__ = ["LMKEmbedding", "LMKNodeParser", "LMKRetriever", "stable_id"]
