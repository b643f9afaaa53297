"""Plans of texts as tensors, one line for each text, and back to rows inside the forward pass.

Sentence Transformers hands features on as tensors whose first axis counts texts; losses and data collators slice
and concatenate along it. A document may need several rows, so its rows stand one behind the other in its line.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lmk_embed.planning import Plan


@dataclass(frozen=True, slots=True)
class RowSlice:
    """A row inside a batch of lines.

    Attributes
    ----------
    text : int
        Line of the batch.
    start, end : int
        Its tokens in that line.
    segments : list of (int, int, int)
        Token range inside the row whose mean state is kept, and 1 where that is a chunk alone, else 0.
    """

    text: int
    start: int
    end: int
    segments: list[tuple[int, int, int]]

    def __len__(self) -> int:
        """Return the number of tokens."""
        return self.end - self.start


def pack(plans: Sequence[Plan], pad_id: int) -> dict[str, Tensor]:
    """Lay planned texts out as tensors.

    Parameters
    ----------
    plans : sequence of Plan
    pad_id : int
        Fills lines up; never read.

    Returns
    -------
    dict
        ``input_ids`` and ``attention_mask``, shape (texts, tokens); ``row_lengths``, shape (texts, rows), zeros
        behind the last row; ``segments``, shape (texts, segments, 4): row, counted from 1, first and last position
        in the row, whether it is a chunk alone; zeros behind the last one, since losses that combine columns fill
        up with zeros; ``chunk_spans``, shape (texts, chunks, 2): characters of each chunk, zeros behind the last.
    """
    lines, lengths, segments, spans = [], [], [], []
    for plan in plans:
        in_context = list(plan.rows())
        rows = in_context + list(plan.rows_alone())
        spans.append(np.array([(piece.start, piece.end) for piece in plan.pieces] or [(0, 0)]))
        lines.append(np.concatenate([row.ids for row in rows]))
        lengths.append(np.array([len(row) for row in rows]))
        segments.append(
            np.array(
                [
                    (number, first, last, number > len(in_context))
                    for number, row in enumerate(rows, start=1)
                    for first, last in row.segments
                ]
            )
        )
    return {
        "input_ids": _padded(lines, pad_id),
        "attention_mask": _padded([np.ones(len(line)) for line in lines], 0),
        "row_lengths": _padded(lengths, 0),
        "segments": _padded(segments, 0),
        "chunk_spans": _padded(spans, 0),
    }


def unpack(features: dict[str, Any]) -> list[RowSlice]:
    """Return the rows of all texts that :func:`pack` laid out."""
    rows = []
    lengths, segments = features["row_lengths"].tolist(), features["segments"].tolist()
    for text, (row_lengths, kept) in enumerate(zip(lengths, segments, strict=True)):
        start = 0
        own: list[RowSlice] = []
        for length in filter(None, row_lengths):
            own.append(RowSlice(text, start, start + length, []))
            start += length
        for row, first, last, alone in kept:
            if row:
                own[row - 1].segments.append((first, last, alone))
        rows += own
    return rows


def _padded(arrays: Sequence[np.ndarray], fill: int) -> Tensor:
    """Stack arrays of different lengths along their first axis."""
    shape = (len(arrays), max(map(len, arrays)), *arrays[0].shape[1:])
    stacked = np.full(shape, fill, dtype=np.int64)
    for index, array in enumerate(arrays):
        stacked[index, : len(array)] = array
    return torch.from_numpy(stacked)
