"""The rows nearest to a vector, and a remedy where Chroma's index does not find them.

The graph that Chroma searches has a blind spot: more than 32 (nearly) equal vectors link to nothing but each
other, and a search that comes upon them never leaves. It then returns too few rows, or in a small collection the
wrong ones, without an error. Repeated headers and footers are such vectors. So a small collection is always
searched to its end, and whenever fewer rows come back than were asked for, the rows that match are counted; if
some are missing, all of them are compared one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from chroma_lmk.errors import StoreError
from chroma_lmk.reader import Reader, pages
from chroma_lmk.rows import StoredRow, parse_row_id, read_row, row_id
from chroma_lmk.settings import Space
from lmk_embed.results import Vector

Filter = Mapping[str, Any]

# Up to here a search to the end costs a few milliseconds.
SMALL = 1_000
_PAGE = 2_000


@dataclass(frozen=True, slots=True)
class Candidate:
    """A row that was found: its place and score, and its content only if that was read already."""

    doc_id: str
    chunk: int
    score: float
    row: StoredRow | None = None

    @property
    def id(self) -> str:
        """Id of the row."""
        return row_id(self.doc_id, self.chunk)


class Index:
    """Finds rows of one collection by distance; safe to use from several threads.

    Parameters
    ----------
    reader : Reader
    space : {"cosine", "ip", "l2"}
        Distance Chroma orders by.
    """

    def __init__(self, reader: Reader, space: Space) -> None:
        self._reader = reader
        self._space = space
        self._large = False

    def nearest(
        self, vector: Vector, n: int, where: Filter | None, where_document: Filter | None, *, content: bool
    ) -> tuple[list[Candidate], bool]:
        """Find the rows nearest to a vector.

        Parameters
        ----------
        vector : ndarray of float32, shape (D,)
            Unit length.
        n : int
            How many rows to ask for.
        where, where_document : mapping or None
            Chroma's filters.
        content : bool
            Whether to read their content at once: cheaper if all of them are needed, dearer if not.

        Returns
        -------
        candidates : list of Candidate
            Best first, equal scores in the order of document id and chunk.
        exhausted : bool
            Whether these are all rows that match.
        """
        filters = {"where": dict(where) if where else None, "where_document": dict(where_document or {}) or None}
        size = self._size_if_small()
        if size is not None and n < size:
            n, content = size, False
        include = ["distances", *(("documents", "metadatas") if content else ())]
        found = self._reader.query(
            query_embeddings=vector[None, :], n_results=max(n, 1), include=include, **filters
        )
        ids, distances = found["ids"][0], found["distances"][0]
        if len(ids) < n:
            matching = self._matching(filters)
            if len(ids) < len(matching):
                return self._compare_all(vector, matching), True
        scores = [self._cosine(distance) for distance in distances]
        if not content:
            return _sorted(_candidates(ids, scores)), len(ids) < n
        texts, metadatas = found["documents"][0], found["metadatas"][0]
        rows = map(read_row, texts, metadatas, scores)
        return _sorted(Candidate(row.doc_id, row.chunk, row.score, row) for row in rows if row), len(ids) < n

    def content(self, candidates: Sequence[Candidate]) -> list[StoredRow]:
        """Read the content of rows that were found.

        Parameters
        ----------
        candidates : sequence of Candidate

        Returns
        -------
        list of StoredRow
            In the same order, without those that are gone by now or belong to a document that is not complete.
        """
        missing = {each.id: each.score for each in candidates if each.row is None}
        found = self._reader.rows(list(missing), missing) if missing else {}
        rows = [row for each in candidates if (row := each.row or found.get(each.id)) is not None]
        large = {row.doc_id for row in rows if row.large}
        states = self._reader.states(large) if large else {}
        versions = {doc_id: state.version for doc_id, state in states.items() if state.complete}
        return [row for row in rows if not row.large or versions.get(row.doc_id) == row.version]

    def _size_if_small(self) -> int | None:
        """Return the number of rows of a small collection; one that has grown large is not counted again."""
        if self._large:
            return None
        size = self._reader.count()
        self._large = size > SMALL
        return None if self._large else size

    def _matching(self, filters: Mapping[str, Any]) -> list[str]:
        return [row for page in self._reader.pages(include=[], **filters) for row in page["ids"]]

    def _compare_all(self, vector: Vector, ids: Sequence[str]) -> list[Candidate]:
        candidates: list[Candidate] = []
        for page in pages(ids, _PAGE):
            vectors = self._reader.vectors(page)
            if vectors:
                cosines = np.clip(np.stack(list(vectors.values())) @ vector, -1, 1)
                candidates += _candidates(vectors, cosines.tolist())
        return _sorted(candidates)

    def _cosine(self, distance: float | None) -> float:
        # Stored vectors and the query have unit length, so each of Chroma's distances is a function of the
        # cosine: 1 - cos for "cosine" and "ip", the squared distance 2 - 2 cos for "l2".
        if distance is None:
            raise StoreError("Chroma answered without the distances it was asked for")
        cosine = 1.0 - (distance / 2 if self._space == "l2" else distance)
        return min(1.0, max(-1.0, cosine))


def _candidates(ids: Iterable[str], scores: Iterable[float]) -> list[Candidate]:
    places = ((parse_row_id(row), score) for row, score in zip(ids, scores, strict=True))
    return [Candidate(*place, score) for place, score in places if place is not None]


def _sorted(candidates: Iterable[Candidate]) -> list[Candidate]:
    return sorted(candidates, key=lambda each: (-each.score, each.doc_id, each.chunk))
