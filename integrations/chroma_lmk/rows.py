"""How a document lies in a collection: one row a chunk, and what the first row says about the whole.

Every row holds its own place in the source, so that a search result needs no second look-up:

=================  =====================================================================================
``lmk:doc``        id of the document
``lmk:chunk``      index of the chunk, from 0
``lmk:start/end``  character span in the source
``lmk:gap``        characters between this chunk and the next one or the end (left out when there are none)
``lmk:lead``       characters before the first chunk (row 0 only, left out when there are none)
``lmk:tokens``     content tokens of the chunk
``lmk:norm``       length of its raw state; ``norm * vector`` is what coarser vectors are means of
``lmk:version``    tells the rows of one state of a document from those of another
``lmk:large``      the document needs more than one write: trust this row only if row 0 says so
``lmk:dead``       left over from a longer state of the document, about to be deleted: never trust this row
=================  =====================================================================================

Row 0 also holds ``lmk:chunks`` (how many rows the document has), ``lmk:digest`` (of text and metadata),
``lmk:complete`` and, only while there is something left to clean, ``lmk:rows`` (how many rows may exist).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from chroma_lmk import metadata as codec
from chroma_lmk.errors import StoreError
from lmk_embed.results import Document, DocumentEmbedding, Vector

DOC, CHUNK, START, END = "lmk:doc", "lmk:chunk", "lmk:start", "lmk:end"
GAP, LEAD, TOKENS, NORM = "lmk:gap", "lmk:lead", "lmk:tokens", "lmk:norm"
VERSION, LARGE, DEAD = "lmk:version", "lmk:large", "lmk:dead"
CHUNKS, DIGEST, COMPLETE, ROWS = "lmk:chunks", "lmk:digest", "lmk:complete", "lmk:rows"

# Keys a row may have or not. An upsert of Chroma merges metadata, so a replaced row names them all.
_OPTIONAL = (GAP, LEAD, LARGE, DEAD, ROWS, codec.CARRIED)
_VERSION_LENGTH = 16


@dataclass(frozen=True, slots=True)
class Row:
    """A row as it is written."""

    id: str
    vector: Vector
    text: str
    metadata: dict[str, Any]


@dataclass(frozen=True, slots=True)
class StoredRow:
    """A row as it was read.

    Attributes
    ----------
    doc_id : str
    chunk : int
    start, end : int
        Character span in the source.
    text, gap : str
        Characters of the span, and those that follow up to the next chunk.
    version : str
        Equal for the rows of one state of a document.
    large : bool
        Whether the row may only be trusted if row 0 says that the document is complete.
    metadata : mapping
        As Chroma returned it, with our keys.
    score : float
        Cosine with the query; 0 for rows that were not searched for.
    """

    doc_id: str
    chunk: int
    start: int
    end: int
    text: str
    gap: str
    version: str
    large: bool
    metadata: Mapping[str, Any]
    score: float = 0.0


@dataclass(frozen=True, slots=True)
class State:
    """What row 0 says about its document.

    Attributes
    ----------
    chunks : int
        Rows that belong to the document.
    rows : int
        Rows that may exist; more than ``chunks`` when a writer was stopped before it had cleaned up.
    digest, version : str
        Of the text and metadata that were stored last.
    complete : bool
        Whether all rows of that state are written.
    large : bool
        Whether they took more than one write.
    keys : frozenset of str
        Metadata keys the rows may have and a replacement has to drop.
    """

    chunks: int
    rows: int
    digest: str
    version: str
    complete: bool
    large: bool
    keys: frozenset[str]

    @property
    def clean(self) -> bool:
        """Whether the rows of this state are all there, and no others."""
        return self.complete and self.rows == self.chunks


def row_id(doc_id: str, chunk: int) -> str:
    """Return the id of a row.

    Examples
    --------
    >>> row_id("handbook.md", 3)
    'handbook.md#3'
    """
    return f"{doc_id}#{chunk}"


def parse_row_id(row: str) -> tuple[str, int] | None:
    """Take the id of a row apart; None if it is not one of ours.

    Examples
    --------
    >>> parse_row_id("a#b#3")
    ('a#b', 3)
    """
    doc_id, _, chunk = row.rpartition("#")
    return (doc_id, int(chunk)) if doc_id and chunk.isdecimal() else None


def row_ids(doc_id: str, chunks: Iterable[int]) -> list[str]:
    """Return the ids of several rows of one document."""
    return [row_id(doc_id, chunk) for chunk in chunks]


def document_digest(document: Document) -> str:
    """Return the digest of a document's text and metadata, as the store keeps it.

    Parameters
    ----------
    document : Document
        Its id does not count.

    Returns
    -------
    str
        64 hexadecimal digits; equal exactly for equal text and equal metadata, values and types.

    Examples
    --------
    >>> document_digest(Document("a", "text")) == document_digest(Document("b", "text"))
    True
    """
    digest = hashlib.sha256(codec.canonical(document.metadata).encode())
    digest.update(b"\0")
    digest.update(document.text.encode())
    return digest.hexdigest()


def document_rows(
    doc_id: str, embedding: DocumentEmbedding, stored: codec.Stored, digest: str, *, large: bool
) -> list[Row]:
    """Build the rows of a document in chunk order; none when there is nothing to embed.

    Parameters
    ----------
    doc_id : str
    embedding : DocumentEmbedding
    stored : dict
        The caller's metadata as ``metadata.encode`` returned it.
    digest : str
        ``document_digest`` of the document.
    large : bool
        Whether the rows take more than one write; then row 0 starts as incomplete.

    Raises
    ------
    StoreError
        If the chunks of the embedding do not lie in its text, in order: they could not be given back exactly.
    """
    text, chunks = embedding.text, embedding.chunks
    rows = []
    for index, chunk in enumerate(chunks):
        following = chunks[index + 1].start if index + 1 < len(chunks) else len(text)
        if chunk.index != index or chunk.end > following or text[chunk.start : chunk.end] != chunk.text:
            raise StoreError(
                f"document {doc_id!r}: chunk {index} of the encoder is not text[{chunk.start}:{chunk.end}] "
                "or overlaps its neighbour; nothing of this document was stored"
            )
        meta = stored | {
            DOC: doc_id,
            CHUNK: index,
            START: chunk.start,
            END: chunk.end,
            TOKENS: chunk.n_tokens,
            NORM: chunk.norm,
            VERSION: digest[:_VERSION_LENGTH],
        }
        if gap := text[chunk.end : following]:
            meta[GAP] = gap
        if large:
            meta[LARGE] = True
        if index == 0:
            meta |= {CHUNKS: len(chunks), DIGEST: digest, COMPLETE: not large}
            if lead := text[: chunk.start]:
                meta[LEAD] = lead
        rows.append(Row(row_id(doc_id, index), chunk.vector, chunk.text, meta))
    return rows


def replacing(rows: Sequence[Row], old: State) -> list[Row]:
    """Prepare rows for an upsert over an older state of the same document.

    One upsert is atomic, so the document changes from one state to the other without anything in between: keys
    that the older state had are dropped, and rows it had more of are marked dead until they are deleted.

    Parameters
    ----------
    rows : sequence of Row
        At least one, of a document that fits into one write.
    old : State
        The state that is replaced, also small enough for one write.

    Returns
    -------
    list of Row
        ``max(len(rows), old.rows)`` rows.
    """
    dropped = dict.fromkeys(old.keys)
    first = rows[0]
    over = [Row(row.id, row.vector, row.text, dropped | row.metadata) for row in rows]
    if len(rows) < old.rows:
        over[0].metadata[ROWS] = old.rows
    doc_id, nowhere = first.metadata[DOC], first.vector * 0
    dead = dropped | {DOC: doc_id, DEAD: True}
    surplus = range(len(rows), old.rows)
    return over + [Row(row_id(doc_id, chunk), nowhere, "", dead | {CHUNK: chunk}) for chunk in surplus]


def read_state(stored: Mapping[str, Any]) -> State:
    """Read what row 0 says about its document."""
    chunks = int(stored[CHUNKS])
    return State(
        chunks=chunks,
        rows=max(chunks, int(stored.get(ROWS, 0))),
        digest=str(stored[DIGEST]),
        version=str(stored[VERSION]),
        complete=bool(stored[COMPLETE]),
        large=LARGE in stored,
        keys=frozenset(key for key in stored if not key.startswith(codec.PREFIX)).union(_OPTIONAL),
    )


def read_row(text: str | None, stored: Mapping[str, Any] | None, score: float = 0.0) -> StoredRow | None:
    """Read a row; None for one that is dead, or that was deleted after the search and before its look-up."""
    if stored is None or text is None or DEAD in stored or END not in stored:
        return None
    return StoredRow(
        doc_id=str(stored[DOC]),
        chunk=int(stored[CHUNK]),
        start=int(stored[START]),
        end=int(stored[END]),
        text=text,
        gap=str(stored.get(GAP, "")),
        version=str(stored[VERSION]),
        large=LARGE in stored,
        metadata=stored,
        score=score,
    )
