"""LMKNodeParser: documents in, nodes out that carry the vector of their chunk in its document."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Self
from uuid import NAMESPACE_URL, uuid5

from llama_index.core.bridge.pydantic import ConfigDict, Field, field_validator
from llama_index.core.node_parser.interface import IdFuncCallable, NodeParser
from llama_index.core.node_parser.node_utils import build_nodes_from_splits
from llama_index.core.schema import BaseNode, Document, MetadataMode, TextNode

from llama_index.embeddings.lmk.embedding import LMKEmbedding
from llama_index.embeddings.lmk.in_context import mark_in_context
from lmk_embed import DocumentEmbedding


def stable_id(i: int, doc: BaseNode) -> str:
    """Return the id of a document's chunk: the same for the same text and metadata, another after any change.

    Vector stores that ignore an id they know (Chroma's) can then not keep an old vector for a new text. A UUID,
    since some stores take nothing else.

    Parameters
    ----------
    i : int
        Index of the chunk.
    doc : BaseNode

    Returns
    -------
    str

    Examples
    --------
    >>> stable_id(0, TextNode(id_="lease", text="The rent is due on the third."))
    '1889d19f-00de-55e8-a6a7-3fbeded529b1'
    """
    return str(uuid5(NAMESPACE_URL, f"{doc.node_id}\n{doc.hash}\n{i}"))


class LMKNodeParser(NodeParser):
    """Cuts documents into chunks and embeds them in one pass over each document.

    It stands in an ``IngestionPipeline`` for the splitter *and* the embedding, or in front of
    ``VectorStoreIndex(nodes)``, which leaves nodes that have an embedding as they are. So does the
    :class:`LMKEmbedding` of the queries, should it follow in the pipeline; other embeddings would embed each node
    once more, alone. A document without text gives no nodes. Metadata is handed on as by other node parsers; it is
    neither embedded nor part of a span.

    The pipeline's cache knows a list of documents by their contents and metadata written one after the other, and
    not by their ids. Documents without any metadata are mistaken for others with the same characters in a row:
    give them metadata that tells them apart, as ``SimpleDirectoryReader`` does, or set ``disable_cache=True``.

    Parameters
    ----------
    embed_model : LMKEmbedding
        By default with the bundled model. Give the object that embeds the queries, so that weights are there once.
    max_tokens : int, optional
        Join neighbouring chunks up to so many tokens, without another pass; without it, nodes are chunks of
        ``embed_model.granularity`` tokens at most.
    id_func : callable
        Called with the index of a chunk and its document; :func:`stable_id` unless given.
    include_metadata, include_prev_next_rel, callback_manager
        As for every node parser of LlamaIndex.

    Examples
    --------
    >>> nodes = LMKNodeParser().get_nodes_from_documents([Document(text="Rent is due on the third. Call me.")])
    >>> nodes[0].start_char_idx, nodes[0].end_char_idx, len(nodes[0].embedding)
    (0, 34, 384)
    """

    model_config = ConfigDict(extra="forbid")

    embed_model: LMKEmbedding = Field(default_factory=LMKEmbedding)
    max_tokens: int | None = Field(default=None, ge=1)
    id_func: IdFuncCallable = Field(default=stable_id)

    @field_validator("embed_model", mode="before")
    @classmethod
    def _read_embedding(cls, value: Any) -> Any:
        return LMKEmbedding.from_dict(value) if isinstance(value, dict) else value

    @classmethod
    def class_name(cls) -> str:
        """Return the name that LlamaIndex stores."""
        return "LMKNodeParser"

    def to_dict(self, **kwargs: Any) -> dict[str, Any]:
        """Return all settings, those of the embedding included; see :meth:`LMKEmbedding.to_dict`."""
        return {**super().to_dict(**kwargs), "embed_model": self.embed_model.to_dict(**kwargs)}

    @classmethod
    def from_dict(cls, data: dict[str, Any], **kwargs: Any) -> Self:
        """Build the parser that :meth:`to_dict` described.

        Raises
        ------
        ValueError
            If it had an ``id_func`` of its own and none is given: a function cannot be read back from its name.
        """
        settings = {**data, **kwargs}
        stored = settings.get("id_func")
        if isinstance(stored, dict):
            if stored.get("id_func_name") != stable_id.__name__:
                raise ValueError(f"id_func {stored.get('id_func_name')!r} is not stored; pass id_func=… again")
            del settings["id_func"]
        return super().from_dict(settings)

    def _parse_nodes(
        self, nodes: Sequence[BaseNode], show_progress: bool = False, **kwargs: Any
    ) -> list[BaseNode]:
        texts = [node.get_content(metadata_mode=MetadataMode.NONE) for node in nodes]
        documents = self.embed_model.encoder.encode_documents(texts, show_progress=show_progress)
        made: list[BaseNode] = []
        for node, document in zip(nodes, documents, strict=True):
            made += self._chunk_nodes(node, document)
        return made

    async def _aparse_nodes(
        self, nodes: Sequence[BaseNode], show_progress: bool = False, **kwargs: Any
    ) -> list[BaseNode]:
        texts = [node.get_content(metadata_mode=MetadataMode.NONE) for node in nodes]
        encoder = await self.embed_model.aencoder()
        sources = iter(nodes)
        made: list[BaseNode] = []
        async for document in encoder.aencode_documents(texts):
            made += self._chunk_nodes(next(sources), document)
        await asyncio.to_thread(lambda: encoder.fingerprint)  # reads all weights, once; needed below
        return made

    def _chunk_nodes(self, source: BaseNode, document: DocumentEmbedding) -> list[TextNode]:
        if self.max_tokens is not None:
            document = document.merge(self.max_tokens)
        nodes = build_nodes_from_splits([chunk.text for chunk in document.chunks], source, id_func=self.id_func)
        # Where the source is itself a piece of a document, that document becomes the node's source.
        first = 0 if source.source_node is None else getattr(source, "start_char_idx", None)
        for node, chunk in zip(nodes, document.chunks, strict=True):
            node.embedding = chunk.vector.tolist()
            if first is not None:
                node.start_char_idx, node.end_char_idx = first + chunk.start, first + chunk.end
        return nodes

    def _postprocess_parsed_nodes(
        self, nodes: list[BaseNode], parent_doc_map: dict[str, Document]
    ) -> list[BaseNode]:
        # The base class adds metadata and relationships, and guesses the spans that are known here.
        fingerprint = self.embed_model.encoder.fingerprint
        spans = [(node.start_char_idx, node.end_char_idx) for node in nodes if isinstance(node, TextNode)]
        nodes = super()._postprocess_parsed_nodes(nodes, parent_doc_map)
        for node, (start, end) in zip(nodes, spans, strict=True):
            assert isinstance(node, TextNode)  # made by _chunk_nodes
            node.start_char_idx, node.end_char_idx = start, end
            mark_in_context(node, fingerprint)
        return nodes
