"""An embedder without a model that remembers what it was asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lmk_embed.evaluation import CorpusVectors
from lmk_embed.results import Matrix


class Counting:
    """Embeds a text as its length and counts what it is asked for."""

    name = "counting:1"
    settings: dict[str, Any] = {}  # noqa: RUF012
    fingerprint = "f"

    def __init__(self, key: str = "k") -> None:
        self.key = key
        self.documents: list[str] = []
        self.queries: list[str] = []
        self.stop_at: str | None = None

    def encode_documents(self, texts: Sequence[str]) -> CorpusVectors:
        if self.stop_at in texts:
            raise KeyboardInterrupt
        self.documents += texts
        n = len(texts)
        sizes = np.array([[len(text), 1] for text in texts], dtype=np.float32)
        spans = np.array([(0, len(text)) for text in texts])
        return CorpusVectors(np.ones(n, dtype=np.int64), spans, sizes, sizes, np.zeros(n, dtype=bool), 0.5)

    def encode_queries(self, texts: Sequence[str]) -> Matrix:
        self.queries += texts
        return np.array([[len(text), 0] for text in texts], dtype=np.float32)
