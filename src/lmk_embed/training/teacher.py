"""What the student is to learn: the teacher's vector of each chunk, alone and in its window, put together."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lmk_embed.backends import Backend
from lmk_embed.batching import token_batches
from lmk_embed.config import Pooling, RowPooling
from lmk_embed.layout import Row
from lmk_embed.results import Matrix, unit
from lmk_embed.training.sampling import Batch, Recipe

#: Padded tokens of a forward pass.
_PASS_TOKENS = 8192


class Teacher:
    """The base model, used as it was trained.

    Parameters
    ----------
    backend : Backend
    pooling : {"mean", "cls", "lasttoken"}
        How it pools a text.
    recipe : Recipe
        ``context_weight`` and ``neighbour_weight`` are read.
    """

    def __init__(self, backend: Backend, pooling: RowPooling, recipe: Recipe) -> None:
        self._backend = backend
        self._alone = pooling
        # A model that speaks at its last token speaks at the token that closes a chunk. Others are asked for the
        # mean over the chunk, which [CLS] models give well, too.
        self._context: Pooling = "landmark" if pooling == "lasttoken" else "span_mean"
        self._recipe = recipe

    def targets(self, batch: Batch) -> Matrix:
        """Return the target of every chunk.

        Parameters
        ----------
        batch : Batch

        Returns
        -------
        ndarray of float32, shape (n_chunks, D)
            Unit length; text by text, chunk by chunk. The target of a text of one chunk is the teacher's own
            vector of it, so that short texts, queries among them, keep their meaning.
        """
        alone = unit(self._encode(batch.rows(self._alone)))
        text = np.repeat(np.arange(len(batch.chunks)), batch.chunks)
        several = np.asarray(batch.chunks)[text] > 1
        if not several.any():
            return alone
        context = unit(self._encode(batch.rows(self._context)))
        blended = np.where(several[:, None], unit(alone + self._recipe.context_weight * context), alone)
        return smoothed(blended, text, self._recipe.neighbour_weight)

    def _encode(self, rows: Sequence[Row]) -> Matrix:
        starts = np.concatenate([[0], np.cumsum([len(row.segments) for row in rows])])
        states = np.empty((int(starts[-1]), self._backend.dimension), dtype=np.float32)
        for batch in token_batches([len(row) for row in rows], _PASS_TOKENS):
            places = np.concatenate([np.arange(starts[index], starts[index + 1]) for index in batch])
            states[places] = self._backend.encode([rows[index] for index in batch])
        return states


def smoothed(vectors: Matrix, text: NDArray[np.int64], weight: float) -> Matrix:
    """Add to each vector its neighbours in the same text.

    Parameters
    ----------
    vectors : ndarray of float32, shape (n, D)
    text : ndarray of int64, shape (n,)
        The text that each belongs to.
    weight : float
        Of each neighbour.

    Returns
    -------
    ndarray of float32, shape (n, D)
        Unit length.

    Examples
    --------
    >>> pair = np.eye(2, dtype=np.float32)
    >>> bool(np.allclose(smoothed(pair, np.array([0, 1]), 0.5), pair))
    True
    """
    same = (text[1:] == text[:-1])[:, None] * np.float32(weight)
    mixed = vectors.copy()
    mixed[1:] += same * vectors[:-1]
    mixed[:-1] += same * vectors[1:]
    return unit(mixed)


class Targets:
    """Targets by batch, computed once where batches come more than once.

    Parameters
    ----------
    teacher : Teacher
    folder : Path, optional
        Where to keep them, in half precision; by default nowhere.
    """

    def __init__(self, teacher: Teacher, folder: Path | None = None) -> None:
        self._teacher = teacher
        self._folder = folder
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)

    def of(self, batch: Batch) -> Matrix:
        """Return the targets of a batch; see :meth:`Teacher.targets`."""
        if self._folder is None:
            return self._teacher.targets(batch)
        path = self._folder / f"{batch.number}.npy"
        if path.exists():
            return unit(np.load(path).astype(np.float32))
        targets = self._teacher.targets(batch)
        part = path.with_suffix(".part")
        with part.open("wb") as file:
            np.save(file, targets.astype(np.float16))
        part.replace(path)
        return targets
