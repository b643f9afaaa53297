"""A deterministic encoder without weights that counts its forward passes, and encoders around it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from lmk_embed import LandmarkConfig, LandmarkEncoder
from lmk_embed.layout import Row
from lmk_embed.models import default_checkpoint
from lmk_embed.results import Matrix
from lmk_embed.tokens import ContentTokenizer


class CountingBackend:
    """A state is a fixed random vector of its token, position and row, so context and order both matter."""

    def __init__(self, dimension: int = 16) -> None:
        self.dimension = dimension
        self.batches: list[tuple[int, int]] = []
        self.rows: list[Row] = []
        self._table = np.random.default_rng(0).normal(size=(997, dimension)).astype(np.float32)

    @property
    def padded_tokens(self) -> list[int]:
        """Padded tokens of each forward pass."""
        return [n_rows * width for n_rows, width in self.batches]

    def encode(self, rows: Sequence[Row]) -> Matrix:
        self.batches.append((len(rows), max(map(len, rows))))
        self.rows += rows
        return np.concatenate([self._one(row) for row in rows])

    def _one(self, row: Row) -> Matrix:
        places = np.arange(len(row))
        states = self._table[row.ids % 997] + 0.3 * self._table[(places * 7 + 1) % 997]
        states = states + 0.5 * states.mean(axis=0)
        return np.stack([states[lo:hi].mean(axis=0) for lo, hi in row.segments]).astype(np.float32)

    def weights_digest(self) -> str:
        return "counting"

    def save(self, folder: Path) -> None:
        raise AssertionError("not needed here")


@cache
def _content(landmark_token: str | None) -> ContentTokenizer:
    return ContentTokenizer(wordpiece(), landmark_token)


def wordpiece() -> Any:
    """Return the real uncased WordPiece tokenizer of MiniLM."""
    return AutoTokenizer.from_pretrained(default_checkpoint()[0])


def eos_only_words() -> PreTrainedTokenizerFast:
    """Return a word tokenizer like a decoder's: one special token, which closes texts and pads."""
    vocab = {"<eos>": 0, "<unk>": 1} | {f"w{i}": i + 2 for i in range(100)}
    tokenizer = Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<eos>", pad_token="<eos>", unk_token="<unk>"
    )


def fake_encoder(
    tokenizer: Any = None, *, limit: int = 512, batch_tokens: int = 16_384, **settings: Any
) -> tuple[LandmarkEncoder, CountingBackend]:
    """Build an encoder on a counting backend; fixed boundaries and landmark pooling unless told otherwise."""
    backend = CountingBackend()
    config = LandmarkConfig(**{"boundaries": "fixed", "landmark_trained": True, **settings})
    content = ContentTokenizer(tokenizer, config.landmark_token) if tokenizer else _content(config.landmark_token)
    encoder = LandmarkEncoder(backend, content, config, max_positions=limit, batch_tokens=batch_tokens)
    return encoder, backend
