"""Reading a whole collection to find, and remove, what does not belong to a complete document."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from chroma_lmk.document_vectors import stored_rows
from chroma_lmk.reader import Reader
from chroma_lmk.rows import CHUNK, DEAD, DIGEST, DOC, ROWS, VERSION, State, read_state, row_id
from chroma_lmk.writer import Writer


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """What a look at every row has found.

    Attributes
    ----------
    documents, chunks : int
        Complete documents and their rows.
    incomplete : tuple of str
        Ids of documents that have to be added again: a crash left only part of them, or rows are missing.
    orphans : tuple of str
        Ids of rows that belong to no complete document.
    vectors : tuple of str
        Ids of documents whose document vector is missing, left over or not that of the stored state.
    foreign : int
        Rows that something other than a store wrote; they are left alone.
    repaired : bool
        Whether orphans and incomplete documents were deleted, and document vectors put right.
    """

    documents: int = 0
    chunks: int = 0
    incomplete: tuple[str, ...] = ()
    orphans: tuple[str, ...] = ()
    vectors: tuple[str, ...] = ()
    foreign: int = 0
    repaired: bool = False

    @property
    def ok(self) -> bool:
        """Whether the collection holds complete documents of a store and nothing else."""
        return self.repaired or not (self.incomplete or self.orphans or self.vectors)


def verify(reader: Reader, vectors: Reader | None = None, writer: Writer | None = None) -> VerifyReport:
    """Compare every row with what row 0 of its document says.

    Parameters
    ----------
    reader : Reader
    vectors : Reader, optional
        Of the document vectors.
    writer : Writer, optional
        With it, what does not belong is deleted.

    Returns
    -------
    VerifyReport
    """
    states = {str(stored[DOC]): read_state(stored) for _, stored in reader.scan({CHUNK: 0}) if DEAD not in stored}
    owned = dict.fromkeys(states, 0)
    orphans: list[str] = []
    foreign = 0
    for row, stored in reader.scan():
        if not stored or DOC not in stored:
            foreign += 1
            continue
        doc_id = str(stored[DOC])
        if _belongs(stored, states.get(doc_id)):
            owned[doc_id] += 1
        else:
            orphans.append(row)
    incomplete = sorted(
        doc_id for doc_id, state in states.items() if not state.complete or owned[doc_id] != state.chunks
    )
    broken = set(incomplete)
    if writer is not None:
        writer.delete_rows(orphans)
        writer.delete(incomplete)
        left_over = [
            doc_id for doc_id, state in states.items() if state.rows > state.chunks and doc_id not in broken
        ]
        writer.update({row_id(doc_id, 0): {ROWS: None} for doc_id in left_over})
    complete = {doc_id: state for doc_id, state in states.items() if doc_id not in broken}
    wrong = _wrong_vectors(vectors, complete) if vectors else []
    if writer is not None and writer.vectors is not None:
        writer.vectors.delete(doc_id for doc_id in wrong if doc_id not in complete)
        for rows in stored_rows(reader, (doc_id for doc_id in wrong if doc_id in complete)):
            writer.vectors.write_rows(rows)
    return VerifyReport(
        documents=len(states) - len(incomplete),
        chunks=sum(count for doc_id, count in owned.items() if doc_id not in broken),
        incomplete=tuple(incomplete),
        orphans=tuple(orphans),
        vectors=tuple(wrong),
        foreign=foreign,
        repaired=writer is not None,
    )


def _wrong_vectors(vectors: Reader, complete: Mapping[str, State]) -> list[str]:
    stored = {str(found[DOC]): str(found[DIGEST]) for _, found in vectors.scan({CHUNK: 0})}
    left_over = stored.keys() - complete.keys()
    return sorted(left_over | {key for key, state in complete.items() if stored.get(key) != state.digest})


def _belongs(stored: Mapping[str, Any], state: State | None) -> bool:
    return (
        state is not None
        and DEAD not in stored
        and stored.get(VERSION) == state.version
        and int(stored[CHUNK]) < state.chunks
    )
