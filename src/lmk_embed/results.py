"""What goes in and what comes out: documents, chunks and document embeddings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lmk_embed.errors import ConfigError

Vector = NDArray[np.float32]
Matrix = NDArray[np.float32]


def unit(states: Matrix) -> Matrix:
    """Scale vectors to unit length; a zero vector stays zero.

    Parameters
    ----------
    states : ndarray of float32, shape (..., D)

    Returns
    -------
    ndarray of float32, shape (..., D)

    Examples
    --------
    >>> unit(np.array([[3.0, 4.0], [0.0, 0.0]], dtype=np.float32))
    array([[0.6, 0.8], [0. , 0. ]], dtype=float32)
    """
    norms = np.linalg.norm(states, axis=-1, keepdims=True)
    return np.asarray(states / np.where(norms == 0, 1, norms), dtype=np.float32)


def with_neighbours(states: Matrix, weight: float) -> Matrix:
    """Add to each state a part of those before and behind it.

    Parameters
    ----------
    states : ndarray of float32, shape (n, D)
        Of the chunks of one document, in order.
    weight : float
        Of each neighbour.

    Returns
    -------
    ndarray of float32, shape (n, D)

    Examples
    --------
    >>> with_neighbours(np.eye(3, dtype=np.float32), 0.5).tolist()
    [[1.0, 0.5, 0.0], [0.5, 1.0, 0.5], [0.0, 0.5, 1.0]]
    """
    mixed = states.copy()
    mixed[1:] += np.float32(weight) * states[:-1]
    mixed[:-1] += np.float32(weight) * states[1:]
    return mixed


@dataclass(frozen=True, slots=True)
class Document:
    """A text with an identity, as stores take it.

    Attributes
    ----------
    id : str
        Unique in a collection.
    text : str
        The caller's string; spans index into exactly this string.
    metadata : mapping of str to Any
        The caller's own keys and values.
    """

    id: str
    text: str
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class Chunk:
    """A piece of a document and its vector in the context of that document.

    Attributes
    ----------
    index : int
        Position among the chunks of the document, from 0.
    start, end : int
        Character span in the caller's string: ``text == source[start:end]``.
    n_tokens : int
        Content tokens of the encoder's own tokenizer in the chunk.
    text : str
        The characters of the span.
    vector : ndarray of float32, shape (D,)
        Unit length.
    norm : float
        Length of the raw state; ``norm * vector`` is what document vectors and coarser chunks are means of.
    """

    index: int
    start: int
    end: int
    n_tokens: int
    text: str = field(repr=False)
    vector: Vector = field(repr=False)
    norm: float = field(repr=False)


@dataclass(frozen=True, slots=True, eq=False)
class DocumentEmbedding:
    """The vectors of one document.

    Attributes
    ----------
    text : str
        The caller's string.
    vector : ndarray of float32, shape (D,)
        Unit length; the direction of the mean of the raw chunk states. For a text without content (empty or
        blank) it is the model's state for an empty text, and there are no chunks.
    chunks : tuple of Chunk
        In document order.
    n_tokens : int
        Content tokens that were encoded.
    total_tokens : int
        Content tokens of the whole text; larger than ``n_tokens`` exactly when the text was truncated.
    """

    text: str = field(repr=False)
    vector: Vector = field(repr=False)
    chunks: tuple[Chunk, ...] = field(repr=False)
    n_tokens: int
    total_tokens: int

    @property
    def truncated(self) -> bool:
        """Whether the end of the text is missing from the vectors."""
        return self.n_tokens < self.total_tokens

    @property
    def end(self) -> int:
        """Character position just after the last encoded character; 0 when there are no chunks."""
        return self.chunks[-1].end if self.chunks else 0

    @property
    def states(self) -> Matrix:
        """Raw chunk states before normalising, shape (n_chunks, D) float32."""
        if not self.chunks:
            return np.empty((0, self.vector.shape[0]), dtype=np.float32)
        return np.stack([chunk.vector * np.float32(chunk.norm) for chunk in self.chunks])

    def merge(self, max_tokens: int) -> DocumentEmbedding:
        """Join neighbouring chunks into coarser ones, without another pass through the model.

        Parameters
        ----------
        max_tokens : int
            Upper bound of content tokens in a joined chunk. A chunk that is already longer stays as it is.

        Returns
        -------
        DocumentEmbedding
            The same document vector; each chunk's raw state is the mean of the states it was joined from.

        Raises
        ------
        ConfigError
            If ``max_tokens`` is below 1.
        """
        states, chunks = self.states, []
        for index, (first, last) in enumerate(merge_groups([c.n_tokens for c in self.chunks], max_tokens)):
            members = self.chunks[first:last]
            start, end = members[0].start, members[-1].end
            chunks.append(
                make_chunk(
                    index,
                    (start, end),
                    sum(chunk.n_tokens for chunk in members),
                    self.text[start:end],
                    states[first:last].mean(axis=0),
                )
            )
        return DocumentEmbedding(self.text, self.vector, tuple(chunks), self.n_tokens, self.total_tokens)


def make_chunk(index: int, span: tuple[int, int], n_tokens: int, text: str, state: Vector) -> Chunk:
    """Build a chunk from its raw state, shape (D,)."""
    return Chunk(index, span[0], span[1], n_tokens, text, unit(state), float(np.linalg.norm(state)))


def merge_groups(n_tokens: Sequence[int], max_tokens: int) -> list[tuple[int, int]]:
    """Group neighbouring chunks greedily so that no group of several holds more than ``max_tokens`` tokens.

    Parameters
    ----------
    n_tokens : sequence of int
        Content tokens of each chunk, in document order.
    max_tokens : int
        Upper bound of a group.

    Returns
    -------
    list of (int, int)
        Half-open ranges of chunk indices, covering all chunks.

    Raises
    ------
    ConfigError
        If ``max_tokens`` is below 1.

    Examples
    --------
    >>> merge_groups([60, 60, 60, 300, 20], max_tokens=128)
    [(0, 2), (2, 3), (3, 4), (4, 5)]
    """
    if max_tokens < 1:
        raise ConfigError(f"max_tokens must be at least 1, got {max_tokens}")
    groups: list[tuple[int, int]] = []
    first, total = 0, 0
    for index, count in enumerate(n_tokens):
        if index > first and total + count > max_tokens:
            groups.append((first, index))
            first, total = index, 0
        total += count
    if n_tokens:
        groups.append((first, len(n_tokens)))
    return groups
