"""Tell nodes that have the vector of their chunk in its document from nodes that are yet to be embedded."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Sequence

import numpy as np
from llama_index.core.schema import BaseNode, MetadataMode, NodeRelationship, RelatedNodeInfo

#: Key in the metadata of a node's relationship to its source. There it survives caches, other processes and
#: stores, and is no part of the node's own metadata, which stores and language models get to see.
MARK = "lmk:in_context"


def mark_in_context(node: BaseNode, fingerprint: str) -> None:
    """Note in a node that its vector is that of its text in the context of its source.

    Parameters
    ----------
    node : BaseNode
        With an embedding and a source.
    fingerprint : str
        Of the encoder.
    """
    source = node.relationships[NodeRelationship.SOURCE]
    assert isinstance(source, RelatedNodeInfo)
    metadata = {**source.metadata, MARK: _digest(node, fingerprint)}
    node.relationships[NodeRelationship.SOURCE] = source.model_copy(update={"metadata": metadata})


def to_embed(nodes: Sequence[BaseNode], fingerprint: str) -> list[BaseNode]:
    """Return the nodes without those that have a vector in context of the same model and settings.

    Warns of vectors in context that are going to be lost: those of another model or other settings, or of a text
    that has changed since.

    Parameters
    ----------
    nodes : sequence of BaseNode
    fingerprint : str
        Of the encoder.

    Returns
    -------
    list of BaseNode
    """
    found = [(node, _mark(node)) for node in nodes]
    rest = [(node, mark) for node, mark in found if mark is None or mark != _digest(node, fingerprint)]
    if any(mark is not None for _, mark in rest):
        warnings.warn(
            "LMKNodeParser embedded nodes in the context of their documents, but with another model or other "
            "settings, or their text has changed since: they are embedded again, each alone. To keep the context, "
            "give the parser this embed_model, and clear the pipeline's cache, which holds what was lost.",
            stacklevel=4,
        )
    return [node for node, _ in rest]


def _mark(node: BaseNode) -> str | None:
    source = node.relationships.get(NodeRelationship.SOURCE)
    if node.embedding is None or not isinstance(source, RelatedNodeInfo):
        return None
    mark: str | None = source.metadata.get(MARK)
    return mark


def _digest(node: BaseNode, fingerprint: str) -> str:
    # With the text and the vector: later steps may change either, and splitters hand on both to what they cut.
    text = node.get_content(metadata_mode=MetadataMode.NONE)
    vector = np.asarray(node.embedding, dtype=np.float32)
    return hashlib.sha256(b"\n".join([fingerprint.encode(), text.encode(), vector.tobytes()])).hexdigest()
