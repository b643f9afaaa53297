"""Rows through a backend, batch by batch, and vectors back to the documents they belong to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter

import numpy as np

from lmk_embed.backends import Backend
from lmk_embed.batching import look_ahead, token_batches
from lmk_embed.layout import Row
from lmk_embed.planning import Plan
from lmk_embed.results import DocumentEmbedding, Matrix, make_chunk, unit, with_neighbours

#: Forward passes' worth of rows that are sorted by length together.
_LOOK_AHEAD = 4


@dataclass(slots=True)
class _Pending:
    """A document whose rows are on their way."""

    plan: Plan
    dimension: int
    truncate_dim: int | None
    neighbour_weight: float
    open_rows: int = 0
    laid_out: bool = False
    states: Matrix = field(init=False)
    alone: Matrix | None = field(init=False)

    def __post_init__(self) -> None:
        shape = (max(len(self.plan.pieces), 1), self.dimension)
        self.states = np.empty(shape, dtype=np.float32)
        self.alone = None if self.plan.alone is None else np.empty(shape, dtype=np.float32)

    @property
    def complete(self) -> bool:
        return self.laid_out and not self.open_rows

    def finish(self) -> DocumentEmbedding:
        plan = self.plan
        states = self.states[:, : self.truncate_dim]
        if self.alone is not None:
            states = unit(states) + unit(self.alone[:, : self.truncate_dim])
        groups = [list(group) for _, group in groupby(range(len(plan.pieces)), key=plan.owners.__getitem__)]
        if not groups:
            return DocumentEmbedding(plan.text, unit(states[0]), (), plan.n_tokens, plan.total_tokens)
        own = np.stack([states[group[0] : group[-1] + 1].mean(axis=0) for group in groups])
        own = with_neighbours(own, self.neighbour_weight)
        chunks = []
        for index, (group, state) in enumerate(zip(groups, own, strict=True)):
            members = plan.pieces[group[0] : group[-1] + 1]
            start, end = members[0].start, members[-1].end
            chunks.append(make_chunk(index, (start, end), sum(map(len, members)), plan.text[start:end], state))
        return DocumentEmbedding(
            plan.text, unit(own.mean(axis=0)), tuple(chunks), plan.n_tokens, plan.total_tokens
        )


@dataclass(frozen=True, slots=True, eq=False)
class _Task:
    """One row and where its vectors go."""

    pending: _Pending
    row: Row
    target: Matrix

    def __len__(self) -> int:
        return len(self.row)

    def take(self, states: Matrix) -> None:
        self.target[list(self.row.chunks)] = states
        self.pending.open_rows -= 1


def stream(
    plans: Iterable[Plan],
    backend: Backend,
    batch_tokens: int,
    truncate_dim: int | None,
    neighbour_weight: float,
) -> Iterator[list[DocumentEmbedding]]:
    """Encode planned documents.

    Parameters
    ----------
    plans : iterable of Plan
        Read lazily. If it raises, everything before that is encoded and yielded first.
    backend : Backend
    batch_tokens : int
        Most padded tokens of one forward pass; memory is a small multiple of it, whatever the input's length.
    truncate_dim : int or None
        Dimensions to keep.
    neighbour_weight : float
        See :class:`lmk_embed.LandmarkConfig`.

    Yields
    ------
    list of DocumentEmbedding
        After each forward pass the documents it completed, in input order; often none.
    """
    waiting: list[_Pending] = []
    failure: list[Exception] = []

    def tasks() -> Iterator[_Task]:
        try:
            for plan in plans:
                pending = _Pending(plan, backend.dimension, truncate_dim, neighbour_weight)
                waiting.append(pending)
                yield from _tasks_of(pending)
        except Exception as error:
            failure.append(error)

    for buffer in look_ahead(tasks(), batch_tokens * _LOOK_AHEAD):
        for batch in token_batches([len(task) for task in buffer], batch_tokens):
            chosen = itemgetter(*batch)(buffer) if len(batch) > 1 else (buffer[batch[0]],)
            states = backend.encode([task.row for task in chosen])
            at = 0
            for task in chosen:
                task.take(states[at : at + len(task.row.chunks)])
                at += len(task.row.chunks)
            yield _completed(waiting)
    yield _completed(waiting)
    if failure:
        raise failure[0]


def _tasks_of(pending: _Pending) -> Iterator[_Task]:
    for row in pending.plan.rows():
        pending.open_rows += 1
        yield _Task(pending, row, pending.states)
    if pending.alone is not None:
        for row in pending.plan.rows_alone():
            pending.open_rows += 1
            yield _Task(pending, row, pending.alone)
    pending.laid_out = True


def _completed(waiting: list[_Pending]) -> list[DocumentEmbedding]:
    done = []
    while waiting and waiting[0].complete:
        done.append(waiting.pop(0).finish())
    return done
