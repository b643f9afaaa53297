"""Tokens and chunks to rows for the encoder: ``[CLS] c1 [LMK] c2 [LMK] … cn [LMK]``, and which states to keep.

Nothing here knows a model. Landmarks are tracked by position; no token is ever recognised by its id.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from lmk_embed.boundaries import Piece
from lmk_embed.config import Pooling
from lmk_embed.errors import ConfigError
from lmk_embed.tokens import Ints, Tokens


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """One input of the encoder.

    Attributes
    ----------
    ids : ndarray of int32, shape (length,)
        Token ids, prefix and landmarks included, no padding.
    segments : tuple of (int, int)
        Half-open position ranges; the mean of the states in each is one vector to keep.
    chunks : tuple of int
        The chunk that each segment belongs to.
    """

    ids: Ints
    segments: tuple[tuple[int, int], ...]
    chunks: tuple[int, ...]

    def __len__(self) -> int:
        """Return the number of tokens in the row."""
        return len(self.ids)


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """What surrounds the chunks of every row of one role (query or document).

    Attributes
    ----------
    prefix : ndarray of int32
        What the tokenizer puts in front of a text.
    prompt : ndarray of int32
        The role's prompt.
    landmark : int
        Id of the token that closes a chunk.
    max_length : int
        Most tokens of a row.
    """

    prefix: Ints
    prompt: Ints
    landmark: int
    max_length: int

    @property
    def capacity(self) -> int:
        """Tokens of a row that chunks and their landmarks may fill."""
        return self.max_length - len(self.prefix) - len(self.prompt)


@dataclass(frozen=True, slots=True)
class Window:
    """Chunks ``first`` to ``last`` (exclusive) share a row; vectors of ``owned`` chunks are taken from it."""

    first: int
    last: int
    owned: tuple[int, ...]


def windows(lengths: Sequence[int], capacity: int, overlap: int) -> list[Window]:
    """Spread chunks over windows that each fit a row.

    Neighbouring windows share chunks of at most ``overlap`` tokens. A chunk in several windows is taken from the
    one in which its shorter side has most context, the earlier one when equal.

    Parameters
    ----------
    lengths : sequence of int
        Content tokens of each chunk; each costs one more token, its landmark.
    capacity : int
        Tokens that chunks and landmarks may fill; every chunk must fit.
    overlap : int
        Most shared tokens.

    Returns
    -------
    list of Window

    Examples
    --------
    >>> [(w.first, w.last, w.owned) for w in windows([9] * 6, capacity=40, overlap=20)]
    [(0, 4, (0, 1, 2)), (2, 6, (3, 4, 5))]
    """
    costs = np.concatenate([[0], np.cumsum(np.asarray(lengths, dtype=np.int64) + 1)])
    n = len(lengths)
    ranges: list[tuple[int, int]] = []
    first = last = 0
    while last < n:
        first = _next_first(costs, first, last, capacity, overlap)
        last = int(np.searchsorted(costs, costs[first] + capacity, side="right")) - 1
        ranges.append((first, last))
    owner = _owners(costs, ranges)
    return [
        Window(first, last, tuple(c for c in range(first, last) if owner[c] == index))
        for index, (first, last) in enumerate(ranges)
    ]


def _next_first(costs: np.ndarray, first: int, last: int, capacity: int, overlap: int) -> int:
    """Return where the next window begins: as far back as the overlap allows while chunk ``last`` still fits."""
    if last == 0:
        return 0
    shared = int(np.searchsorted(costs, costs[last] - overlap))
    fitting = int(np.searchsorted(costs, costs[last + 1] - capacity))
    return min(max(shared, fitting, first + 1), last)


def _owners(costs: np.ndarray, ranges: Sequence[tuple[int, int]]) -> list[int]:
    best = [(-1, 0)] * (len(costs) - 1)
    for index, (first, last) in enumerate(ranges):
        for chunk in range(first, last):
            context = int(min(costs[chunk] - costs[first], costs[last] - costs[chunk + 1]))
            if context > best[chunk][0]:
                best[chunk] = (context, index)
    return [index for _, index in best]


def truncated(pieces: Sequence[Piece], tokens: Tokens, capacity: int) -> list[Piece]:
    """Keep what fits into one row; the last chunk is shortened so that a landmark still closes it.

    Parameters
    ----------
    pieces : sequence of Piece
    tokens : Tokens
    capacity : int
        Tokens of the row that chunks and landmarks may fill.

    Returns
    -------
    list of Piece
        No token of the row is without a chunk.
    """
    kept: list[Piece] = []
    for piece in pieces:
        if len(piece) + 1 <= capacity:
            kept.append(piece)
            capacity -= len(piece) + 1
            continue
        last = piece.first + capacity - 1
        while last > piece.first and tokens.starts[last] < tokens.ends[last - 1]:
            last -= 1
        kept_tokens = tokens.slice(piece.first, last)
        solid = kept_tokens.ends > kept_tokens.starts  # white space at the cut is no part of the span
        end = int(kept_tokens.ends[solid].max(initial=0))
        if end > piece.start:
            kept.append(Piece(piece.first, last, piece.start, end))
        break
    return kept


def rows(
    tokens: Tokens,
    pieces: Sequence[Piece],
    frame: Frame,
    pooling: Pooling,
    *,
    overlap: int = 0,
    include_prompt: bool = True,
) -> Iterator[Row]:
    """Lay chunks out in rows.

    Parameters
    ----------
    tokens : Tokens
    pieces : sequence of Piece
        None: one row without content, so that an empty text has a vector too (of chunk 0).
    frame : Frame
    pooling : str
        See :class:`lmk_embed.LandmarkConfig`; poolings of whole rows put each chunk in a row of its own.
    overlap : int
        Most tokens shared by neighbouring windows.
    include_prompt : bool
        Whether the prompt, and what comes before it, counts for means and as the first state.

    Yields
    ------
    Row
        Lazily, in document order.

    Raises
    ------
    ConfigError
        If one character has more tokens than fit into a row.
    """
    if not pieces:
        pieces = [Piece(0, 0, 0, 0)]
    longest = max(map(len, pieces))
    if longest + 1 > frame.capacity:
        raise ConfigError(
            f"a chunk of {longest} tokens that cannot be divided, and its landmark, do not fit into the "
            f"{frame.capacity} tokens that a row of {frame.max_length} leaves; raise max_seq_length"
        )
    if pooling in ("mean", "cls", "lasttoken"):
        spread = [Window(index, index + 1, (index,)) for index in range(len(pieces))]
    else:
        spread = windows([len(piece) for piece in pieces], frame.capacity, overlap)
    for window in spread:
        yield _row(tokens, pieces[window.first : window.last], window, frame, pooling, include_prompt)


def _row(
    tokens: Tokens,
    pieces: Sequence[Piece],
    window: Window,
    frame: Frame,
    pooling: Pooling,
    include_prompt: bool,
) -> Row:
    parts: list[Ints] = [frame.prefix, frame.prompt]
    head = len(frame.prefix) + len(frame.prompt)
    # A prompt that is not to count takes [CLS] with it, as in Sentence Transformers.
    opening_state = 0 if include_prompt or not len(frame.prompt) else head
    marks_before = pooling == "multi_cls"
    # A chunk is marked behind itself by a landmark, or in front of itself by a repeated [CLS].
    opening = frame.prefix[-1:] if len(frame.prefix) else np.array([frame.landmark], dtype=np.int32)
    closing = np.array([frame.landmark], dtype=np.int32)
    at, segments, chunks = head, [], []
    for index, piece in enumerate(pieces, start=window.first):
        length = len(piece)
        first_in_row = index == window.first
        if marks_before and not first_in_row:
            parts.append(opening)
            at += 1
        if index in window.owned:
            begin = opening_state if index == 0 or pooling in ("mean", "cls") else at
            mark = (max(len(frame.prefix) - 1, 0) if first_in_row else at - 1) if marks_before else at + length
            segments.append(_segment(pooling, begin, mark, at + length + 1))
            chunks.append(index)
        parts.append(tokens.ids[piece.first : piece.last])
        at += length
        if not marks_before or index == window.last - 1:
            parts.append(closing)
            at += 1
    return Row(np.concatenate(parts), tuple(segments), tuple(chunks))


def _segment(pooling: Pooling, begin: int, mark: int, end: int) -> tuple[int, int]:
    if pooling in ("landmark", "multi_cls", "lasttoken"):
        return mark, mark + 1
    if pooling == "cls":
        return begin, begin + 1
    return begin, end
