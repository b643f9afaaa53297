"""LMKRetriever: chunks, passages or documents of a LandmarkStore as LlamaIndex's nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.schema import NodeRelationship, NodeWithScore, QueryBundle, RelatedNodeInfo, TextNode
from llama_index.core.vector_stores.types import MetadataFilters

from llama_index.embeddings.lmk.filters import chroma_where
from lmk_embed.errors import ConfigError

if TYPE_CHECKING:
    from chroma_lmk import Hit, LandmarkStore
    from chroma_lmk.search import DocumentScore, Per


class LMKRetriever(BaseRetriever):
    """Searches a :class:`chroma_lmk.LandmarkStore`.

    Parameters
    ----------
    store : LandmarkStore
        Its encoder embeds the queries.
    similarity_top_k : int
        Nodes to return; fewer only if there are no more.
    per : {"chunk", "passage", "document"}
        A node is a chunk; neighbouring chunks joined and widened up to ``max_chars``; or the best chunk of each of
        ``similarity_top_k`` different documents.
    filters : MetadataFilters, optional
        Applied before anything is ranked.
    where : mapping, optional
        The same as Chroma writes it, instead of ``filters``.
    where_document, min_score, document_score, max_chars, max_tokens
        As for :meth:`chroma_lmk.LandmarkStore.search`.
    **options
        As for every retriever of LlamaIndex, such as ``callback_manager``.

    Raises
    ------
    ConfigError
        If both ``filters`` and ``where`` are given, or Chroma has no such filter.

    Examples
    --------
    >>> from chroma_lmk import LandmarkStore
    >>> from lmk_embed import Document, LandmarkEncoder
    >>> store = LandmarkStore("library.db", "lmk", LandmarkEncoder.from_pretrained())  # doctest: +SKIP
    >>> store.add([Document("lease", open("lease.txt").read())])  # doctest: +SKIP
    >>> LMKRetriever(store, per="passage").retrieve("When is the rent due?")  # doctest: +SKIP
    """

    def __init__(
        self,
        store: LandmarkStore,
        *,
        similarity_top_k: int = 5,
        per: Per = "chunk",
        filters: MetadataFilters | None = None,
        where: Mapping[str, Any] | None = None,
        where_document: Mapping[str, Any] | None = None,
        min_score: float | None = None,
        document_score: DocumentScore = "max",
        max_chars: int = 1_000,
        max_tokens: int | None = None,
        **options: Any,
    ) -> None:
        if filters is not None and where is not None:
            raise ConfigError("give filters or where, not both")
        super().__init__(**options)
        self._store = store
        self.similarity_top_k = similarity_top_k
        self._search: dict[str, Any] = {
            "per": per,
            "where": where if filters is None else chroma_where(filters),
            "where_document": where_document,
            "min_score": min_score,
            "document_score": document_score,
            "max_chars": max_chars,
            "max_tokens": max_tokens,
        }

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        hits = self._store.search(self._query(query_bundle), self.similarity_top_k, **self._search)
        return [_node(hit) for hit in hits]

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return await asyncio.to_thread(self._retrieve, query_bundle)

    def _query(self, query_bundle: QueryBundle) -> Any:
        """Return what to search for: a given vector, the text, or the mean of several texts' vectors (HyDE)."""
        if query_bundle.embedding is not None:
            return query_bundle.embedding
        texts = query_bundle.embedding_strs
        return texts[0] if len(texts) == 1 else np.mean(self._store.encoder.encode_queries(texts), axis=0)


def _node(hit: Hit) -> NodeWithScore:
    node = TextNode(
        id_=f"{hit.doc_id}#{hit.start}-{hit.end}",
        text=hit.text,
        metadata=dict(hit.metadata),
        start_char_idx=hit.start,
        end_char_idx=hit.end,
        relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id=hit.doc_id)},
    )
    return NodeWithScore(node=node, score=hit.score)
