"""Coarser spans at search time: neighbouring chunks joined as ``DocumentEmbedding.merge`` joins them.

The vector of a joined span is the mean of the raw chunk states, and those are stored (vector and length). So any
granularity above that of the index can be searched without another pass through the model.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from chroma_lmk.hits import Hit
from chroma_lmk.nearest import Candidate
from chroma_lmk.reader import Reader, pages
from chroma_lmk.rows import CHUNKS, DOC, TOKENS, StoredRow, row_id
from chroma_lmk.whole import WholeDocument, read_whole
from lmk_embed.results import Vector, merge_groups, unit

_DOCUMENTS = 16  # read at a time, so that the vectors of all are never in memory together


@dataclass(frozen=True, slots=True, eq=False)
class CoarseDocument:
    """A document cut into coarser spans.

    Attributes
    ----------
    doc_id : str
    vector_score : float
        Cosine of the query with the vector of the document, which is the same at any granularity.
    rows : list of StoredRow
        The spans as if they were chunks: numbered from 0, each with its score.
    best : list of int
        For each span, the index of its chunk that is nearest to the query.
    groups : list of (int, int)
        Half-open ranges of chunk indices.
    """

    doc_id: str
    vector_score: float
    rows: list[StoredRow]
    best: list[int]
    groups: list[tuple[int, int]]

    @property
    def mean(self) -> float:
        """Mean score of the spans."""
        return sum(row.score for row in self.rows) / len(self.rows)

    @classmethod
    def of(cls, whole: WholeDocument, vector: Vector, max_tokens: int) -> CoarseDocument:
        """Join the chunks of a document and compare the spans with a query vector of unit length."""
        groups = merge_groups([int(row.metadata[TOKENS]) for row in whole.rows], max_tokens)
        states, cosines = whole.states, whole.vectors @ vector
        joined = unit(np.stack([states[first:last].mean(axis=0) for first, last in groups]))
        scores = np.clip(joined @ vector, -1, 1).tolist()
        rows = [
            _join(whole.rows[first:last], index, len(groups), score)
            for index, ((first, last), score) in enumerate(zip(groups, scores, strict=True))
        ]
        best = [first + int(cosines[first:last].argmax()) for first, last in groups]
        vector_score = float(np.clip(unit(states.mean(axis=0)) @ vector, -1, 1))
        return cls(whole.doc_id, vector_score, rows, best, groups)


@dataclass(frozen=True, slots=True, eq=False)
class Spans:
    """The spans of several documents.

    Attributes
    ----------
    documents : list of CoarseDocument
    found : list of Candidate
        Spans that match the filter, best first; equal scores in the order of document id and place.
    rows : dict of str to StoredRow
        All spans by id, as if they were rows.
    """

    documents: list[CoarseDocument]
    found: list[Candidate]
    rows: dict[str, StoredRow]

    def content(self, candidates: Sequence[Candidate]) -> list[StoredRow]:
        """Return spans that were found."""
        return [self.rows[each.id] for each in candidates]

    def fetch(self, ids: Sequence[str]) -> dict[str, StoredRow]:
        """Return spans by id, without those that do not exist."""
        return {each: self.rows[each] for each in ids if each in self.rows}

    def with_chunks(self, hits: Iterable[Hit]) -> list[Hit]:
        """Let the matches of hits name stored chunks: of each span the one nearest to the query."""
        best = {each.doc_id: each.best for each in self.documents}
        return [
            replace(
                hit,
                matches=tuple(replace(match, chunk=best[hit.doc_id][match.chunk]) for match in hit.matches),
            )
            for hit in hits
        ]


def read_coarse(
    reader: Reader,
    doc_ids: Sequence[str],
    vector: Vector,
    max_tokens: int,
    where_document: Mapping[str, Any] | None = None,
) -> Spans:
    """Read documents and cut them into coarser spans.

    Parameters
    ----------
    reader : Reader
    doc_ids : sequence of str
        Ids that are not stored completely are left out.
    vector : ndarray of float32, shape (D,)
        The query, unit length.
    max_tokens : int
        Upper bound of content tokens in a joined span.
    where_document : mapping, optional
        Chroma's filter on the text of a chunk. A span matches if one of its chunks does.

    Returns
    -------
    Spans
    """
    documents = [
        CoarseDocument.of(whole, vector, max_tokens)
        for page in pages(doc_ids, _DOCUMENTS)
        for whole in read_whole(reader, page)[0].values()
    ]
    matching = _matching(reader, doc_ids, where_document)
    found = [
        Candidate(row.doc_id, row.chunk, row.score, row)
        for each in documents
        for row, (first, last) in zip(each.rows, each.groups, strict=True)
        if matching is None or any(row_id(each.doc_id, chunk) in matching for chunk in range(first, last))
    ]
    found.sort(key=lambda each: (-each.score, each.doc_id, each.chunk))
    return Spans(documents, found, {row_id(row.doc_id, row.chunk): row for each in documents for row in each.rows})


def _matching(reader: Reader, doc_ids: Sequence[str], where_document: Mapping[str, Any] | None) -> set[str] | None:
    """Return the ids of all chunks of these documents that match; None if there is no filter."""
    if not where_document or not doc_ids:
        return None
    mine = {DOC: {"$in": list(doc_ids)}}
    return {
        row
        for page in reader.pages(include=[], where=mine, where_document=dict(where_document))
        for row in page["ids"]
    }


def _join(rows: Sequence[StoredRow], index: int, count: int, score: float) -> StoredRow:
    """Make one span of neighbouring chunks."""
    first, last = rows[0], rows[-1]
    return StoredRow(
        doc_id=first.doc_id,
        chunk=index,
        start=first.start,
        end=last.end,
        text="".join(row.text + row.gap for row in rows[:-1]) + last.text,
        gap=last.gap,
        version=first.version,
        large=False,
        metadata={**first.metadata, CHUNKS: count},
        score=score,
    )
