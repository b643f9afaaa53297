"""Search per chunk, passage or document: ask for more and more rows until nothing unseen can matter."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, Protocol, TypeVar, get_args

import numpy as np

from chroma_lmk.coarse import read_coarse
from chroma_lmk.errors import QueryError
from chroma_lmk.hits import Hit
from chroma_lmk.nearest import Candidate, Filter, Index
from chroma_lmk.passages import passage_hits
from chroma_lmk.reader import Reader, pages
from chroma_lmk.rows import StoredRow
from chroma_lmk.whole import WholeDocument, read_whole
from lmk_embed.results import Vector, unit

Per = Literal["chunk", "passage", "document"]
DocumentScore = Literal["max", "mean", "document_vector"]

# So many rows are asked for at first for each document or passage; ids alone cost little.
_FIRST = 4
# With very many equal scores, more rows than this are not fetched just to order them.
_MAX_TIES = 1_000
# Documents that are read whole to be ranked anew: so many for each hit, but not fewer than that.
_WHOLE = 4
_MIN_WHOLE = 20
# Two ways to compute the same cosine differ by less.
_SAME_SCORE = 1e-5


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
    max_tokens: int | None = None
    language: str = "en"

    def __post_init__(self) -> None:
        """Refuse impossible settings before anything is read."""
        for name, number in (("k", self.k), ("max_tokens", 1 if self.max_tokens is None else self.max_tokens)):
            if isinstance(number, bool) or not isinstance(number, int) or number < 1:
                raise QueryError(f"{name} must be a whole number of at least 1, got {number!r}")
            if number >= 2**31:
                raise QueryError(f"{name} must be below {2**31:,}, got {number:,}")
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


def search(reader: Reader, index: Index, query: Query, vectors: Index | None = None) -> list[Hit]:
    """Run a search.

    Parameters
    ----------
    reader : Reader
    index : Index
        Of the same collection.
    query : Query
    vectors : Index, optional
        Of the document vectors.

    Returns
    -------
    list of Hit
        At most ``query.k``, best first; equal scores in the order of document id and chunk.
    """
    if query.max_tokens is not None:
        return _coarse_hits(reader, index, query, query.max_tokens)
    k, first = query.k, _FIRST * query.k + 1
    if query.per == "chunk":
        return _settled(index, query, k, k + 1, lambda found: _chunk_hits(index, found, k), content=True)
    if query.per == "passage":
        build = partial(
            passage_hits,
            k=k,
            max_chars=query.max_chars,
            language=query.language,
            content=index.content,
            fetch=reader.rows,
        )
        return _settled(index, query, k, first, build)
    if query.document_score == "max":
        return _settled(index, query, k, first, lambda found: _document_hits(index, found, k))
    if query.document_score == "document_vector" and vectors is not None and not query.where_document:
        hits = _settled(vectors, query, k, k + 1, lambda found: _vector_hits(reader, found, query))
        if hits:
            return hits
        # There are none; unless the vector of the only document is just being replaced, which takes two steps.
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


def _owners(index: Index, query: Query, n: int) -> dict[str, list[Candidate]]:
    """Find the ``n`` documents that own the best chunks, or all that match if there are not so many."""
    groups: dict[str, list[Candidate]] = {}

    def leaders(found: list[Candidate]) -> list[Candidate]:
        groups.update(_by_document(found))
        return [group[0] for group in groups.values()]

    _settled(index, replace(query, min_score=None), n, _FIRST * n, leaders)
    best = sorted(groups, key=lambda doc_id: (-groups[doc_id][0].score, doc_id))
    return {doc_id: groups[doc_id] for doc_id in best[:n]}


def _rescored(reader: Reader, index: Index, query: Query) -> list[Hit]:
    """Rank the documents that own the best chunks by all of their chunks."""
    groups = _owners(index, query, _WHOLE * query.k)
    whole, _ = read_whole(reader, list(groups))
    best = _ranked({doc_id: _whole_score(each, query) for doc_id, each in whole.items()}, query)
    rows = {row.doc_id: row for row in _best_rows(index, [groups[doc_id] for doc_id in best])}
    return [Hit.of(rows[doc_id], score) for doc_id, score in best.items() if doc_id in rows]


def _vector_hits(reader: Reader, found: Sequence[Candidate], query: Query) -> list[Hit]:
    """Read the documents whose vectors were found, as far as they are stored and match in the state they have."""
    states = reader.states((each.doc_id for each in found), query.where)
    scores = {each.doc_id: each.score for each in found if each.doc_id in states and states[each.doc_id].complete}
    hits: list[Hit] = []
    for page in pages(scores, query.k):
        for doc_id, whole in read_whole(reader, page)[0].items():
            score = _whole_score(whole, query)
            if abs(score - scores[doc_id]) < _SAME_SCORE:
                score = scores[doc_id]  # else the vector is that of another state of the document
            if query.min_score is None or score >= query.min_score:
                cosines = np.clip(whole.vectors @ query.vector, -1, 1)
                best = int(cosines.argmax())
                hits.append(Hit.of(replace(whole.rows[best], score=float(cosines[best])), score))
        if len(hits) >= query.k:
            break
    return sorted(hits, key=lambda hit: (-hit.score, hit.doc_id))[: query.k]


def _whole_score(whole: WholeDocument, query: Query) -> float:
    if query.document_score == "mean":
        score = float((whole.vectors @ query.vector).mean())
    else:
        score = float(unit(whole.states.mean(axis=0)) @ query.vector)
    return min(1.0, max(-1.0, score))


def _ranked(scores: Mapping[str, float], query: Query) -> dict[str, float]:
    """Return the k documents with the best scores, best first."""
    floor = -1.0 if query.min_score is None else query.min_score
    best = sorted((-score, doc_id) for doc_id, score in scores.items() if score >= floor)
    return {doc_id: -score for score, doc_id in best[: query.k]}


def _coarse_hits(reader: Reader, index: Index, query: Query, max_tokens: int) -> list[Hit]:
    """Rank the coarser spans of the documents that own the best chunks.

    A joined vector may be nearer to the query than each of those it was joined from, and nothing bounds by how
    much. So the spans of the documents that are read are ranked exactly, but which documents those are is decided
    by their chunks (measured over 300 documents of 20 chunks, four chunks a span, k = 10: at least 0.996 of the
    best ten spans were found, also for queries unlike any chunk; 0.95 with half as many documents).
    """
    owners = _owners(index, query, max(_WHOLE * query.k, _MIN_WHOLE))
    spans = read_coarse(reader, list(owners), query.vector, max_tokens, query.where_document)
    if query.per == "document" and query.document_score != "max":
        mean = query.document_score == "mean"
        best = _ranked({each.doc_id: each.mean if mean else each.vector_score for each in spans.documents}, query)
        leading = {doc_id: spans.rows[found[0].id] for doc_id, found in _by_document(spans.found).items()}
        hits = (Hit.of(leading[doc_id], score) for doc_id, score in best.items() if doc_id in leading)
        return spans.with_chunks(hits)
    floor = -1.0 if query.min_score is None else query.min_score
    found = [each for each in spans.found if each.score >= floor]
    if query.per == "passage":
        return spans.with_chunks(
            passage_hits(found, query.k, query.max_chars, query.language, spans.content, spans.fetch)
        )
    if query.per == "document":
        found = [group[0] for group in _by_document(found).values()]
    return spans.with_chunks(map(Hit.of, spans.content(found[: query.k])))
