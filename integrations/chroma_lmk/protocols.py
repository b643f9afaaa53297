"""What the store needs of an encoder; ``lmk_embed.LandmarkEncoder`` is one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Protocol

from lmk_embed.results import DocumentEmbedding, Matrix


class Encoder(Protocol):
    """Turns documents into chunk vectors and queries into vectors of the same space."""

    @property
    def fingerprint(self) -> str:
        """Hexadecimal; equal exactly when weights and every setting that changes vectors are equal."""

    @property
    def dimension(self) -> int:
        """Length of every vector."""

    def encode_documents(self, texts: Iterable[str]) -> Iterator[DocumentEmbedding]:
        """Yield one result a text, in input order, reading only as far ahead as a batch needs."""

    def encode_queries(self, texts: list[str]) -> Matrix:
        """Return unit vectors, shape (len(texts), dimension)."""

    def to_dict(self) -> dict[str, Any]:
        """Return what is needed to build the same encoder again, as values JSON can hold."""
