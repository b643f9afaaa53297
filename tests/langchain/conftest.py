"""Embeddings on a tiny model, and a store on them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from langchain_lmk import LandmarkVectorStore, LMKEmbeddings


@pytest.fixture(scope="session")
def embeddings(tiny_model: Path) -> LMKEmbeddings:
    return LMKEmbeddings(model=tiny_model, granularity=16)


@pytest.fixture(scope="session")
def bundled() -> LMKEmbeddings:
    return LMKEmbeddings()


@pytest.fixture
def vectorstore(embeddings: LMKEmbeddings) -> Iterator[LandmarkVectorStore]:
    """Return an empty store in memory."""
    with LandmarkVectorStore(embeddings) as store:
        yield store
