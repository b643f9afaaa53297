"""Embeddings on a tiny model, with a count of its forward passes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from llama_index.core import Settings

from llama_index.embeddings.lmk import LMKEmbedding
from lmk_embed import LandmarkEncoder
from lmk_embed.layout import Row
from lmk_embed.results import Matrix


class Counting:
    """Passes rows on to a real backend and counts; ``pause`` makes each pass slow."""

    def __init__(self, backend: Any) -> None:
        self._backend = backend
        self.dimension: int = backend.dimension
        self.pause = 0.0
        self.passes = 0
        self.at_once = 0
        self._running = 0
        self._lock = threading.Lock()

    def encode(self, rows: Sequence[Row]) -> Matrix:
        with self._lock:
            self.passes += 1
            self._running += 1
            self.at_once = max(self.at_once, self._running)
        time.sleep(self.pause)
        states: Matrix = self._backend.encode(rows)
        with self._lock:
            self._running -= 1
        return states

    def weights_digest(self) -> str:
        digest: str = self._backend.weights_digest()
        return digest

    def save(self, folder: Path) -> None:
        self._backend.save(folder)


Counted = Callable[..., tuple[LMKEmbedding, Counting]]


@pytest.fixture
def counted(tiny_model: Path) -> Counted:
    """Return a function that makes an embedding from settings, and what counts its passes."""

    def make(*, embeddings_cache: Any = None, **settings: Any) -> tuple[LMKEmbedding, Counting]:
        encoder = LandmarkEncoder.from_pretrained(tiny_model, **{"granularity": 16} | settings)
        backend = Counting(encoder._backend)
        encoder._backend = backend
        return LMKEmbedding.from_encoder(encoder, embeddings_cache=embeddings_cache), backend

    return make


@pytest.fixture(scope="session")
def embedding(tiny_model: Path) -> LMKEmbedding:
    return LMKEmbedding(model_name=str(tiny_model), granularity=16)


@pytest.fixture(autouse=True)
def settings(embedding: LMKEmbedding) -> Iterator[None]:
    """Give LlamaIndex's global settings back as they were."""
    model, llm = Settings._embed_model, Settings._llm
    yield
    Settings._embed_model, Settings._llm = model, llm
