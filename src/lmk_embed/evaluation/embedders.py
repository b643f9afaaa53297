"""What a system is to the evaluation: something that turns documents and queries into vectors."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from typing import Any, Protocol

from lmk_embed.encoder import LandmarkEncoder
from lmk_embed.evaluation.vectors import CorpusVectors
from lmk_embed.results import Matrix


class Embedder(Protocol):
    """Documents to chunks with vectors; queries to vectors.

    Attributes
    ----------
    name : str
    settings : dict
        JSON-able; what the report says about it.
    fingerprint : str
        Hex digest of weights, tokenizer and what else changes vectors.
    key : JSON-able value
        Everything that changes its vectors.
    """

    name: str

    @property
    def settings(self) -> dict[str, Any]: ...  # noqa: D102

    @property
    def fingerprint(self) -> str: ...  # noqa: D102

    @property
    def key(self) -> Any: ...  # noqa: D102

    def encode_documents(self, texts: Sequence[str]) -> CorpusVectors:
        """Cut and embed documents, at least one."""
        ...

    def encode_queries(self, texts: Sequence[str]) -> Matrix:
        """Embed queries, shape (n, D), unit length."""
        ...


class EncoderEmbedder:
    """A :class:`lmk_embed.LandmarkEncoder` with any settings.

    Parameters
    ----------
    name : str
    encoder : LandmarkEncoder
    """

    def __init__(self, name: str, encoder: LandmarkEncoder) -> None:
        self.name = name
        self._encoder = encoder

    @property
    def settings(self) -> dict[str, Any]:
        """All settings of the encoder."""
        return self._encoder.config.to_dict()

    @property
    def fingerprint(self) -> str:
        """The encoder's own."""
        return self._encoder.fingerprint

    @property
    def key(self) -> str:
        """The fingerprint says it all."""
        return self.fingerprint

    def encode_documents(self, texts: Sequence[str]) -> CorpusVectors:
        """Embed documents, at least one."""
        started = time.perf_counter()
        with warnings.catch_warnings():
            # That texts are cut is what some systems are there to show; the report counts them.
            warnings.filterwarnings("ignore", message=r"text \d+ has \d+ tokens")
            embeddings = list(self._encoder.encode_documents(texts))
        return CorpusVectors.of(embeddings, time.perf_counter() - started)

    def encode_queries(self, texts: Sequence[str]) -> Matrix:
        """Embed queries, shape (n, D), unit length."""
        return self._encoder.encode_queries(texts)
