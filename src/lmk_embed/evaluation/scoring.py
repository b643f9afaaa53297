"""All metrics of one system on one data set, query by query."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from lmk_embed.errors import ConfigError
from lmk_embed.evaluation.data import Dataset
from lmk_embed.evaluation.documents import MEASURES, Gain, document_scores
from lmk_embed.evaluation.spans import (
    DEPTH,
    Intervals,
    budget_recall,
    lengths,
    merged,
    reciprocal_rank,
    top_scores,
)
from lmk_embed.evaluation.vectors import CorpusVectors, best_of, ranked
from lmk_embed.results import Matrix

#: Similarities held at once.
_BLOCK = 8_000_000

Group = Literal["spans", "documents"]


@dataclass(frozen=True, slots=True)
class Cutoffs:
    """Where metrics cut the ranking.

    Attributes
    ----------
    k : int
        Chunks for IoU, precision and recall.
    budget : int
        Retrieved characters for the recall of gold characters.
    gain : {"linear", "exponential"}
        Of graded judgements in nDCG; see :func:`lmk_embed.evaluation.documents.document_scores`.

    Raises
    ------
    ConfigError
        If a number is below 1.
    """

    k: int = 5
    budget: int = 3000
    gain: Gain = "linear"

    def __post_init__(self) -> None:
        """Check the numbers where they enter."""
        for name in ("k", "budget"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, got {getattr(self, name)}")

    def metrics(self, group: Group) -> list[str]:
        """Return the names of a group's metrics, the headline metric first."""
        if group == "documents":
            return [f"{way}.{name}" for name in MEASURES for way in ("best_chunk", "document_vector")]
        names = (f"recall@{self.budget}chars", f"mrr@{DEPTH}", *(f"{m}@{self.k}" for m in TOP))
        return [f"spans.{name}" for name in names]


TOP = ("iou", "precision", "recall")


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """Scores by query.

    Attributes
    ----------
    group : {"spans", "documents"}
    queries : tuple of str
        Ids; those with gold spans, or with a relevant document.
    values : dict of str to ndarray of float64, shape (n_queries,)
        By the name of the metric.
    """

    group: Group
    queries: tuple[str, ...]
    values: dict[str, NDArray[np.float64]]


def score(
    dataset: Dataset, vectors: CorpusVectors, query_vectors: Matrix, cutoffs: Cutoffs | None = None
) -> list[Scores]:
    """Compute every metric that the data set allows.

    Parameters
    ----------
    dataset : Dataset
    vectors : CorpusVectors
        Of ``dataset.documents``, in order.
    query_vectors : ndarray of float32, shape (n_queries, D)
        Of ``dataset.queries``, in order; unit length.
    cutoffs : Cutoffs, optional

    Returns
    -------
    list of Scores
        Of spans, if the set has any, and of documents, if any is judged relevant.
    """
    cutoffs = cutoffs or Cutoffs()
    rows = {query: row for row, query in enumerate(dataset.queries)}
    found = []
    with_spans = [query for query in rows if query in dataset.spans]
    if with_spans:
        vectors_there = query_vectors[[rows[query] for query in with_spans]]
        found.append(_span_scores(dataset, vectors, with_spans, vectors_there, cutoffs))
    judged = [query for query in rows if max(dataset.qrels.get(query, {}).values(), default=0) > 0]
    if judged:
        vectors_there = query_vectors[[rows[query] for query in judged]]
        found.append(_document_scores(dataset, vectors, judged, vectors_there, cutoffs))
    return found


def _blocks(n_queries: int, width: int) -> Iterator[slice]:
    step = max(1, _BLOCK // max(width, 1))
    return (slice(first, first + step) for first in range(0, n_queries, step))


def _span_scores(
    dataset: Dataset, vectors: CorpusVectors, queries: Sequence[str], query_vectors: Matrix, cutoffs: Cutoffs
) -> Scores:
    axis = _Axis(dataset)
    chunks = axis.place_chunks(vectors)
    sizes = lengths(chunks)
    rows: list[tuple[float, ...]] = []
    for block in _blocks(len(queries), len(chunks)):
        similarities = query_vectors[block] @ vectors.chunks.T
        orders = _orders(similarities, sizes, max(DEPTH, cutoffs.k), cutoffs.budget)
        for query, order in zip(queries[block], orders, strict=True):
            best, gold = chunks[order], axis.gold(query)
            rows.append(
                (
                    budget_recall(best, gold, cutoffs.budget),
                    reciprocal_rank(best, gold),
                    *top_scores(best, gold, cutoffs.k),
                )
            )
    columns = np.array(rows, dtype=np.float64).T
    return Scores("spans", tuple(queries), dict(zip(cutoffs.metrics("spans"), columns, strict=True)))


class _Axis:
    """Puts the documents of a corpus one after the other, so that a character is one number."""

    def __init__(self, dataset: Dataset) -> None:
        sizes = np.array([len(text) + 1 for text in dataset.documents.values()], dtype=np.int64)
        # One position stays free behind each text, so that spans of neighbouring documents never touch.
        self._starts = np.cumsum(sizes) - sizes
        self._places = dict(zip(dataset.documents, self._starts.tolist(), strict=True))
        self._spans = dataset.spans

    def place_chunks(self, vectors: CorpusVectors) -> Intervals:
        return np.asarray(vectors.spans + self._starts[vectors.owners][:, None])

    def gold(self, query: str) -> Intervals:
        spans = [
            (start + self._places[doc], end + self._places[doc])
            for doc, gold in self._spans[query].items()
            for start, end in gold
        ]
        return merged(np.array(spans, dtype=np.int64))


def _orders(similarities: Matrix, sizes: NDArray[np.int64], depth: int, budget: int) -> list[NDArray[np.int64]]:
    """Rank chunks for each query only as far down as metrics look: to a depth, and until a budget is used up."""
    orders = list(ranked(similarities, depth))
    open_rows = [row for row, order in enumerate(orders) if sizes[order].sum() <= budget]
    while open_rows and depth < len(sizes):
        depth *= 4
        deeper = ranked(similarities[open_rows], depth)
        for row, order in zip(open_rows, deeper, strict=True):
            orders[row] = order
        open_rows = [row for row in open_rows if sizes[orders[row]].sum() <= budget]
    return orders


def _document_scores(
    dataset: Dataset, vectors: CorpusVectors, queries: Sequence[str], query_vectors: Matrix, cutoffs: Cutoffs
) -> Scores:
    ids = list(dataset.documents)
    parts: list[dict[str, NDArray[np.float64]]] = []
    for block in _blocks(len(queries), max(len(vectors.chunks), len(ids))):
        ways = {
            "best_chunk": best_of(query_vectors[block] @ vectors.chunks.T, vectors.counts),
            "document_vector": query_vectors[block] @ vectors.documents.T,
        }
        parts.append(
            {
                f"{way}.{name}": values
                for way, scores in ways.items()
                for name, values in document_scores(
                    scores, ids, queries[block], dataset.qrels, gain=cutoffs.gain
                ).items()
            }
        )
    names = cutoffs.metrics("documents")
    return Scores("documents", tuple(queries), {name: np.concatenate([p[name] for p in parts]) for name in names})
