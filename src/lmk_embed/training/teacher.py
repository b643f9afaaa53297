"""What the student is to learn: the teacher's vector of each chunk, alone and in its window, put together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from lmk_embed.backends import Backend
from lmk_embed.batching import token_batches
from lmk_embed.boundaries import Piece
from lmk_embed.config import Pooling, RowPooling
from lmk_embed.layout import Row
from lmk_embed.planning import Plan
from lmk_embed.results import Matrix, unit
from lmk_embed.training.sampling import Batch, Recipe, rows_of

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
        ``context_weight``, ``passage_weight`` and ``passage_tokens`` are read.
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
        several = np.repeat(np.asarray(batch.chunks) > 1, batch.chunks)
        if not several.any():
            return alone
        blend = alone.copy()
        if self._recipe.context_weight:
            blend += self._recipe.context_weight * unit(self._encode(batch.rows(self._context)))
        if self._recipe.passage_weight:
            blend += self._recipe.passage_weight * self._passages(batch.plans)
        return np.where(several[:, None], unit(blend), alone)

    def _passages(self, plans: Sequence[Plan]) -> Matrix:
        """Return the vector of the passage around each chunk; every second one is a mean of those beside it."""
        surroundings = [passages(plan, self._recipe.passage_tokens) for plan in plans]
        rows = [row for each in surroundings for row in rows_of(each, self._alone)]
        vectors = unit(self._encode(rows))
        parts = []
        at = 0
        for plan, each in zip(plans, surroundings, strict=True):
            own = vectors[at : at + len(each.pieces)]
            at += len(each.pieces)
            left = np.arange(len(plan.pieces)) // 2
            right = np.minimum((np.arange(len(plan.pieces)) + 1) // 2, len(own) - 1)
            parts.append(unit(own[left] + own[right]))
        return np.concatenate(parts)

    def _encode(self, rows: Sequence[Row]) -> Matrix:
        starts = np.concatenate([[0], np.cumsum([len(row.segments) for row in rows])])
        states = np.empty((int(starts[-1]), self._backend.dimension), dtype=np.float32)
        for batch in token_batches([len(row) for row in rows], _PASS_TOKENS):
            places = np.concatenate([np.arange(starts[index], starts[index + 1]) for index in batch])
            states[places] = self._backend.encode([rows[index] for index in batch])
        return states


def passages(plan: Plan, n_tokens: int) -> Plan:
    """Surround every second chunk with its neighbours, as many on each side as half of what is left has room for.

    Parameters
    ----------
    plan : Plan
        Its pieces share a row.
    n_tokens : int
        Most tokens of a passage; a longer chunk is a passage by itself.

    Returns
    -------
    Plan
        A piece for chunk 0, for chunk 2, and so on.
    """
    costs = np.concatenate([[0], np.cumsum([len(piece) for piece in plan.pieces])])
    around = []
    for index in range(0, len(plan.pieces), 2):
        room = max(min(n_tokens, plan.frame.capacity - 1) - len(plan.pieces[index]), 0) // 2
        first = int(np.searchsorted(costs, costs[index] - room))
        last = int(np.searchsorted(costs, costs[index + 1] + room, side="right")) - 2
        start, end = plan.pieces[first], plan.pieces[last]
        around.append(Piece(start.first, end.last, start.start, end.end))
    return replace(plan, pieces=around, owners=[0] * len(around))


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
