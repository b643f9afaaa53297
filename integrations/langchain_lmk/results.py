"""From the store's hits to LangChain's Documents: whole ones as they were added, parts with their span."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from langchain_core.documents import Document

from chroma_lmk import Hit, LandmarkStore

#: Metadata key of a part's span. The store reserves the prefix, so no metadata of a caller can clash with it.
SPAN_KEY = "lmk:span"


@dataclass(frozen=True, slots=True)
class Span:
    """Where a result lies in the Document that was added.

    Attributes
    ----------
    doc_id : str or None
        Id of that Document, for ``get_by_ids``.
    start, end : int
        Character span: ``page_content == original.page_content[start:end]``.
    score : float or None
        Cosine with the query; None for a whole Document, which does not carry it.
    matches : list of (start, end, score)
        The chunks inside that were found, best first; empty for a whole Document.
    """

    doc_id: str | None
    start: int
    end: int
    score: float | None
    matches: list[tuple[int, int, float]]


def span(document: Document) -> Span:
    """Return the span of a search result, whether it is a part of a Document or all of it.

    Parameters
    ----------
    document : Document
        From ``LandmarkVectorStore``, ``LandmarkRetriever`` or any chain that kept its metadata.

    Returns
    -------
    Span

    Examples
    --------
    >>> span(Document("Rent is due.", id="lease"))
    Span(doc_id='lease', start=0, end=12, score=None, matches=[])
    """
    stored = document.metadata.get(SPAN_KEY)
    return Span(document.id, 0, len(document.page_content), None, []) if stored is None else Span(**stored)


def scored_documents(
    store: LandmarkStore, hits: Sequence[Hit], *, whole: bool
) -> Iterator[tuple[Document, float]]:
    """Turn hits into Documents.

    Parameters
    ----------
    store : LandmarkStore
        Where the hits come from.
    hits : sequence of Hit
    whole : bool
        Whether to return each Document as it was added, rather than the part that was found. One that has a
        single chunk is returned as it was added in any case.

    Yields
    ------
    document : Document
    score : float
        Cosine with the query.
    """
    wanted = dict.fromkeys(hit.doc_id for hit in hits if whole or hit.whole)
    originals = {
        each.id: Document(each.text, id=each.id, metadata=dict(each.metadata)) for each in store.get(wanted)
    }
    for hit in hits:
        if not (whole or hit.whole):
            yield _part(hit), hit.score
        elif hit.doc_id in originals:  # else it was deleted a moment ago
            yield originals[hit.doc_id], hit.score


def _part(hit: Hit) -> Document:
    place = {
        "doc_id": hit.doc_id,
        "start": hit.start,
        "end": hit.end,
        "score": hit.score,
        "matches": [(match.start, match.end, match.score) for match in hit.matches],
    }
    # Unique among results, so that whatever merges results by id keeps all parts of a Document.
    part_id = f"{hit.doc_id}#{hit.matches[0].chunk}"
    return Document(hit.text, id=part_id, metadata={**hit.metadata, SPAN_KEY: place})
