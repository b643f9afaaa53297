"""Search per chunk, passage or document: ask for more and more rows until nothing unseen can matter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Protocol, TypeVar, get_args

import numpy as np

from chroma_lmk.errors import QueryError
from chroma_lmk.hits import Hit
from chroma_lmk.nearest import Candidate, Filter, Index
from chroma_lmk.passages import passage_hits
from chroma_lmk.reader import Reader, pages
from chroma_lmk.rows import NORM, StoredRow, row_ids
from lmk_embed.results import Vector, unit

Per = Literal["chunk", "passage", "document"]
DocumentScore = Literal["max", "mean", "document_vector"]

# So many rows are asked for at first for each document or passage; ids alone cost little.
_FIRST = 4
# With very many equal scores, more rows than this are not fetched just to order them.
_MAX_TIES = 1_000


class _Scored(Protocol):
    @property
    def score(self) -> float: ...


S = TypeVar("S", bound=_Scored)


@dataclass(frozen=True, slots=True)
class Query:
    """A search as it was asked for; see ``LandmarkStore.search`` for the meaning of each setting."""

    vector: Vector
    k: int
    per: Per
    where: Filter | None = None
    where_document: Filter | None = None
    min_score: float | None = None
    document_score: DocumentScore = "max"
    max_chars: int = 1_000

    def __post_init__(self) -> None:
        """Refuse impossible settings before anything is read."""
        if isinstance(self.k, bool) or not isinstance(self.k, int) or self.k < 1:
            raise QueryError(f"k must be a whole number of at least 1, got {self.k!r}")
        for name, value, allowed in (
            ("per", self.per, get_args(Per)),
            ("document_score", self.document_score, get_args(DocumentScore)),
        ):
            if value not in allowed:
                raise QueryError(f"{name} must be one of {', '.join(allowed)}, got {value!r}")
        if self.max_chars < 1:
            raise QueryError(f"max_chars must be at least 1, got {self.max_chars}")


def query_vector(query: Any, dimension: int) -> Vector:
    """Check a query vector and scale it to unit length.

    Parameters
    ----------
    query : array_like, shape (D,)
    dimension : int
        The D of the collection.

    Raises
    ------
    QueryError
        If it has another shape, is zero, or holds something that is not a finite number.

    Examples
    --------
    >>> query_vector([3.0, 4.0], 2)
    array([0.6, 0.8], dtype=float32)
    """
    try:
        vector = np.asarray(query, dtype=np.float32)
    except (TypeError, ValueError):
        raise QueryError(f"a query is a string or a vector of numbers, got {type(query).__name__}") from None
    if vector.shape != (dimension,):
        raise QueryError(f"the query vector has shape {vector.shape}, the collection holds ({dimension},)")
    if not np.isfinite(vector).all() or not vector.any():
        raise QueryError("the query vector must be finite and not zero")
    return unit(vector)


def search(reader: Reader, index: Index, query: Query) -> list[Hit]:
    """Run a search.

    Parameters
    ----------
    reader : Reader
    index : Index
        Of the same collection.
    query : Query

    Returns
    -------
    list of Hit
        At most ``query.k``, best first; equal scores in the order of document id and chunk.
    """
    k, first = query.k, _FIRST * query.k + 1
    if query.per == "chunk":
        return _settled(index, query, k, k + 1, lambda found: _chunk_hits(index, found, k), content=True)
    if query.per == "passage":
        build = partial(passage_hits, k=k, max_chars=query.max_chars, content=index.content, fetch=reader.rows)
        return _settled(index, query, k, first, build)
    if query.document_score == "max":
        return _settled(index, query, k, first, lambda found: _document_hits(index, found, k))
    return _rescored(reader, index, query)


def _settled(
    index: Index,
    query: Query,
    k: int,
    n: int,
    build: Callable[[list[Candidate]], list[S]],
    *,
    content: bool = False,
) -> list[S]:
    """Fetch twice as many rows each time, until none that was not seen can change the k best results."""
    while True:
        found, exhausted = index.nearest(query.vector, n, query.where, query.where_document, content=content)
        floor = found[-1].score if found else 1.0  # nothing unseen scores higher
        if query.min_score is not None:
            found = [each for each in found if each.score >= query.min_score]
            exhausted = exhausted or floor < query.min_score
        results = build(found)
        enough = len(results) >= k and (results[k - 1].score > floor or n >= max(_MAX_TIES, 8 * k))
        if exhausted or enough:
            return results[:k]
        n, content = 2 * n, False


def _chunk_hits(index: Index, found: Sequence[Candidate], k: int) -> list[Hit]:
    hits: list[Hit] = []
    for page in pages(found, k):
        hits += map(Hit.of, index.content(page))
        if len(hits) >= k:
            break
    return hits[:k]


def _document_hits(index: Index, found: Sequence[Candidate], k: int) -> list[Hit]:
    hits: list[Hit] = []
    for page in pages(_by_document(found).values(), k):
        hits += map(Hit.of, _best_rows(index, page))
        if len(hits) >= k:
            break
    return sorted(hits, key=lambda hit: (-hit.score, hit.doc_id))[:k]


def _best_rows(index: Index, groups: Sequence[list[Candidate]]) -> list[StoredRow]:
    """Read the best row of each document that can be read; as a rule that is the first."""
    best: dict[str, StoredRow] = {}
    rest = list(groups)
    while rest:
        best |= {row.doc_id: row for row in index.content([group[0] for group in rest])}
        rest = [group[1:] for group in rest if group[0].doc_id not in best and len(group) > 1]
    return list(best.values())


def _by_document(found: Sequence[Candidate]) -> dict[str, list[Candidate]]:
    grouped: dict[str, list[Candidate]] = {}
    for each in found:
        grouped.setdefault(each.doc_id, []).append(each)
    return grouped


def _rescored(reader: Reader, index: Index, query: Query) -> list[Hit]:
    """Rank the documents that own the best chunks by all of their chunks."""
    groups: dict[str, list[Candidate]] = {}

    def leaders(found: list[Candidate]) -> list[Candidate]:
        groups.update(_by_document(found))
        return [group[0] for group in groups.values()]

    candidates = Query(query.vector, query.k, "document", query.where, query.where_document)
    _settled(index, candidates, 4 * query.k, _FIRST * 4 * query.k, leaders)
    floor = -1.0 if query.min_score is None else query.min_score
    scores = {doc_id: score for doc_id, score in _whole_scores(reader, groups, query).items() if score >= floor}
    best = sorted(scores, key=lambda doc_id: (-scores[doc_id], doc_id))[: query.k]
    rows = {row.doc_id: row for row in _best_rows(index, [groups[doc_id] for doc_id in best])}
    return [Hit.of(rows[doc_id], scores[doc_id]) for doc_id in best if doc_id in rows]


def _whole_scores(reader: Reader, doc_ids: Sequence[str] | dict[str, Any], query: Query) -> dict[str, float]:
    scores = {}
    for doc_id, state in reader.states(doc_ids).items():
        ids = row_ids(doc_id, range(state.chunks))
        vectors, rows = reader.vectors(ids), reader.rows(ids)
        if not state.complete or not all(row in vectors and row in rows for row in ids):
            continue  # being written, or gone a moment ago
        matrix = np.stack([vectors[row] for row in ids])
        if query.document_score == "mean":
            score = float((matrix @ query.vector).mean())
        else:
            norms = np.asarray([rows[row].metadata[NORM] for row in ids], dtype=np.float32)
            score = float(unit((matrix * norms[:, None]).mean(axis=0)) @ query.vector)
        scores[doc_id] = min(1.0, max(-1.0, score))
    return scores
