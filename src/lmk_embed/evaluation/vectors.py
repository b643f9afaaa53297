"""The vectors of a corpus, as every system returns them, and what can be done with them without a model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from lmk_embed.evaluation.spans import Intervals
from lmk_embed.results import DocumentEmbedding, Matrix, unit


@dataclass(frozen=True, slots=True, eq=False)
class CorpusVectors:
    """Chunks and documents of a corpus, in corpus order.

    Attributes
    ----------
    counts : ndarray of int64, shape (n_documents,)
        Chunks of each document; none for a text without content.
    spans : ndarray of int64, shape (n_chunks, 2)
        Characters of each chunk in its document.
    chunks : ndarray of float32, shape (n_chunks, D)
        Unit length.
    documents : ndarray of float32, shape (n_documents, D)
        Unit length.
    cut : ndarray of bool, shape (n_documents,)
        Whether some of the document's text is in no vector.
    seconds : float
        Time it took to cut and encode.
    """

    counts: NDArray[np.int64]
    spans: Intervals
    chunks: Matrix
    documents: Matrix
    cut: NDArray[np.bool_]
    seconds: float

    @staticmethod
    def joined(parts: Sequence[CorpusVectors]) -> CorpusVectors:
        """Return the parts, at least one, one after the other."""
        return CorpusVectors(
            np.concatenate([part.counts for part in parts]),
            np.concatenate([part.spans for part in parts]),
            np.concatenate([part.chunks for part in parts]),
            np.concatenate([part.documents for part in parts]),
            np.concatenate([part.cut for part in parts]),
            sum(part.seconds for part in parts),
        )

    @staticmethod
    def of(embeddings: Iterable[DocumentEmbedding], seconds: float = 0.0) -> CorpusVectors:
        """Collect what a :class:`lmk_embed.LandmarkEncoder` returns for the documents of a corpus.

        Parameters
        ----------
        embeddings : iterable of DocumentEmbedding
            At least one.
        seconds : float
            Time it took to make them.
        """
        done = list(embeddings)
        dimension = done[0].vector.shape[0]
        chunks = [chunk for embedding in done for chunk in embedding.chunks]
        return CorpusVectors(
            counts=np.array([len(embedding.chunks) for embedding in done], dtype=np.int64),
            spans=np.array([(chunk.start, chunk.end) for chunk in chunks], dtype=np.int64).reshape(-1, 2),
            chunks=np.array([chunk.vector for chunk in chunks], dtype=np.float32).reshape(-1, dimension),
            documents=np.stack([embedding.vector for embedding in done]),
            cut=np.array([embedding.truncated for embedding in done]),
            seconds=seconds,
        )

    @property
    def owners(self) -> NDArray[np.int64]:
        """Index of the document of each chunk, shape (n_chunks,)."""
        return np.repeat(np.arange(len(self.counts)), self.counts)

    def smoothed(self, weight: float) -> CorpusVectors:
        """Add to each chunk's vector its neighbours in the document: ``unit(v_i + w v_{i-1} + w v_{i+1})``.

        The vector of a document is the direction of the mean of its smoothed chunks.

        Parameters
        ----------
        weight : float
            ``w``.

        Examples
        --------
        >>> vectors = CorpusVectors(
        ...     counts=np.array([2, 1]),
        ...     spans=np.array([[0, 4], [4, 8], [0, 4]]),
        ...     chunks=np.array([[1, 0], [0, 1], [1, 0]], dtype=np.float32),
        ...     documents=np.array([[0.6, 0.8], [1, 0]], dtype=np.float32),
        ...     cut=np.array([False, False]),
        ...     seconds=0.0,
        ... )
        >>> vectors.smoothed(0.75).chunks.round(2).tolist()
        [[0.800000011920929, 0.6000000238418579], [0.6000000238418579, 0.800000011920929], [1.0, 0.0]]
        """
        owners = self.owners
        together = (owners[1:] == owners[:-1])[:, None] * np.float32(weight)
        states = self.chunks.copy()
        states[1:] += together * self.chunks[:-1]
        states[:-1] += together * self.chunks[1:]
        chunks = unit(states)
        return replace(self, chunks=chunks, documents=mean_vectors(chunks, self.counts, self.documents))


def mean_vectors(chunks: Matrix, counts: NDArray[np.int64], otherwise: Matrix) -> Matrix:
    """Return the direction of the mean of each document's chunks.

    Parameters
    ----------
    chunks : ndarray of float32, shape (n_chunks, D)
    counts : ndarray of int64, shape (n_documents,)
    otherwise : ndarray of float32, shape (n_documents, D)
        For documents without chunks.

    Returns
    -------
    ndarray of float32, shape (n_documents, D)
    """
    means = otherwise.copy()
    filled = counts > 0
    if filled.any():
        # Documents without chunks are left out: reduceat would return a neighbour's chunk for them.
        starts = np.cumsum(counts)[filled] - counts[filled]
        means[filled] = unit(np.add.reduceat(chunks, starts, axis=0))
    return means


def best_of(similarities: Matrix, counts: NDArray[np.int64]) -> Matrix:
    """Score documents by their best chunk.

    Parameters
    ----------
    similarities : ndarray of float32, shape (n_queries, n_chunks)
    counts : ndarray of int64, shape (n_documents,)

    Returns
    -------
    ndarray of float32, shape (n_queries, n_documents)
        -1, the lowest cosine, for a document without chunks.

    Examples
    --------
    >>> best_of(np.array([[0.5, 0.75, 0.25]], dtype=np.float32), np.array([2, 0, 1])).tolist()
    [[0.75, -1.0, 0.25]]
    """
    best = np.full((len(similarities), len(counts)), -1, dtype=np.float32)
    filled = counts > 0
    if filled.any():
        starts = np.cumsum(counts)[filled] - counts[filled]
        best[:, filled] = np.maximum.reduceat(similarities, starts, axis=1)
    return best


def ranked(scores: Matrix, depth: int) -> NDArray[np.int64]:
    """Return the best columns of each row, best first; of equals the earlier one comes first.

    Parameters
    ----------
    scores : ndarray of float32, shape (n, m)
    depth : int
        How many of each row; all of them if there are no more.

    Returns
    -------
    ndarray of int64, shape (n, min(depth, m))

    Examples
    --------
    >>> ranked(np.array([[0.1, 0.9, 0.5, 0.9]], dtype=np.float32), 3).tolist()
    [[1, 3, 2]]
    """
    width = scores.shape[1]
    if depth >= width:
        return np.argsort(-scores, axis=1, kind="stable")
    # A partition alone would take any of the equals at the border, so it only finds the score to reach.
    least = np.partition(scores, width - depth, axis=1)[:, width - depth]
    order = np.empty((len(scores), depth), dtype=np.int64)
    for index, row in enumerate(scores):
        candidates = np.flatnonzero(row >= least[index])
        order[index] = candidates[np.argsort(-row[candidates], kind="stable")[:depth]]
    return order
