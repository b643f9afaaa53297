"""What a search returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from chroma_lmk import metadata as codec
from chroma_lmk.rows import CHUNKS, StoredRow


@dataclass(frozen=True, slots=True)
class Match:
    """A chunk, or a coarser span, that answers the query.

    Attributes
    ----------
    start, end : int
        Character span in the source text.
    score : float
        Cosine with the query.
    chunk : int
        Index among the chunks of its document; for a coarser span, that of its best chunk.
    """

    start: int
    end: int
    score: float
    chunk: int


@dataclass(frozen=True, slots=True)
class Hit:
    """A search result: a chunk, a passage or a document.

    Attributes
    ----------
    doc_id : str
    start, end : int
        Character span in the source: ``text == source[start:end]``. For a document, that of its best chunk.
    text : str
    score : float
        Cosine in [-1, 1], higher is better.
    metadata : mapping of str to Any
        The caller's own, as it was given.
    matches : tuple of Match
        Chunks inside the span that were found, best first; a user interface marks the first one.
    whole : bool
        Whether the span holds every chunk of its document.
    """

    doc_id: str
    start: int
    end: int
    text: str
    score: float
    metadata: Mapping[str, Any]
    matches: tuple[Match, ...]
    whole: bool

    @classmethod
    def of(cls, best: StoredRow, score: float | None = None) -> Hit:
        """Make a hit of a single chunk.

        Parameters
        ----------
        best : StoredRow
        score : float, optional
            Of the hit, if it is not that of the chunk.
        """
        whole = holds_all(best, best.chunk)
        return cls.over(best, (best.start, best.end), best.text, [match(best, best.score)], score, whole=whole)

    @classmethod
    def over(
        cls,
        best: StoredRow,
        span: tuple[int, int],
        text: str,
        matches: Sequence[Match],
        score: float | None = None,
        *,
        whole: bool,
    ) -> Hit:
        """Make a hit of a span around its best chunk."""
        score = best.score if score is None else score
        return cls(best.doc_id, *span, text, score, codec.decode(best.metadata), tuple(matches), whole)


@dataclass(frozen=True, slots=True)
class DocumentInfo:
    """A stored document without its text.

    Attributes
    ----------
    id : str
    metadata : mapping of str to Any
        The caller's own, as it was given.
    chunks : int
        Rows it has.
    digest : str
        Of its text and metadata, see ``document_digest``.
    """

    id: str
    metadata: Mapping[str, Any]
    chunks: int
    digest: str


def match(row: StoredRow, score: float) -> Match:
    """Return the match of a chunk."""
    return Match(row.start, row.end, score, row.chunk)


def holds_all(first: StoredRow, last: int) -> bool:
    """Return whether the chunks from a row up to an index are all that its document has."""
    return first.chunk == 0 and int(first.metadata[CHUNKS]) == last + 1
