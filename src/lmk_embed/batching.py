"""Batches by padded tokens over a look-ahead buffer; pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Sized
from typing import TypeVar

T = TypeVar("T", bound=Sized)

#: A batch is closed before padding exceeds this share of it, once it is worth a call of its own.
_MOST_PADDING = 0.1
_WORTH_A_CALL = 1024


def look_ahead(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Collect consecutive items until their lengths add up to ``size``.

    Parameters
    ----------
    items : iterable of sized objects
    size : int
        A buffer is closed when it reaches this sum; an item longer than that is in a buffer of its own or the
        last of one.

    Yields
    ------
    list
        Buffers in input order.

    Examples
    --------
    >>> list(look_ahead(["aa", "b", "cccc", "d"], size=3))
    [['aa', 'b'], ['cccc'], ['d']]
    """
    buffer: list[T] = []
    total = 0
    for item in items:
        buffer.append(item)
        total += len(item)
        if total >= size:
            yield buffer
            buffer, total = [], 0
    if buffer:
        yield buffer


def token_batches(lengths: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Group rows of similar length so that no batch has more than ``budget`` padded tokens.

    Parameters
    ----------
    lengths : sequence of int
        Tokens of each row.
    budget : int
        Most rows times longest row of a batch; a single longer row still runs, alone.

    Yields
    ------
    list of int
        Indices into ``lengths``, shortest rows first.

    Examples
    --------
    >>> list(token_batches([8000] + [10] * 3, budget=16384))
    [[1, 2, 3], [0]]
    """
    batch: list[int] = []
    real = 0
    for index in sorted(range(len(lengths)), key=lengths.__getitem__):
        padded = (len(batch) + 1) * lengths[index]
        wasteful = real >= _WORTH_A_CALL and padded - real - lengths[index] > _MOST_PADDING * padded
        if batch and (padded > budget or wasteful):
            yield batch
            batch, real = [], 0
        batch.append(index)
        real += lengths[index]
    if batch:
        yield batch
