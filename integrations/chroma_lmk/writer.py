"""Writing documents so that a reader, or a crash at any instant, never meets half of one.

Chroma has no transactions, but one call is atomic, however many rows it has, up to the server's maximum. So

- documents are packed into calls of whole documents, and a document that fits into one call is replaced in one
  step (see ``rows.replacing``); what is left over is marked dead in the same call and deleted after it;
- a larger document is written with row 0 first, marked incomplete, and completed by a last small call; it is
  replaced by deleting it and writing it anew;
- row 0 is the last to go. As long as other rows may exist, row 0 says how many, so that adding or deleting the
  document again finds them by their ids, without a scan.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from chroma_lmk.access import Access
from chroma_lmk.document_vectors import row_of_chunks
from chroma_lmk.errors import StoreError
from chroma_lmk.reader import Reader, pages
from chroma_lmk.rows import COMPLETE, DOC, ROWS, Row, State, replacing, row_id, row_ids

if TYPE_CHECKING:
    from chromadb.api.models.Collection import Collection

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Prepared:
    """A document that is ready to be written; without rows if there is nothing to embed in it."""

    doc_id: str
    rows: list[Row]


class Writer:
    """Writes one collection; the caller sees to it that only one thread of the process does at a time.

    Parameters
    ----------
    collection : Collection
    access : Access
        Already acquired.
    reader : Reader
        Of the same collection.
    limit : int
        Most rows the server takes in one call.
    vectors : Writer, optional
        Of the document vectors; it is always ahead, see ``document_vectors``.
    """

    def __init__(
        self, collection: Collection, access: Access, reader: Reader, limit: int, vectors: Writer | None = None
    ) -> None:
        self._collection = collection
        self._access = access
        self._reader = reader
        self.limit = limit
        self.vectors = vectors

    def write(self, documents: Sequence[Prepared]) -> set[str]:
        """Write documents, replacing what is stored under their ids.

        Parameters
        ----------
        documents : sequence of Prepared
            With different ids. One without rows is removed.

        Returns
        -------
        set of str
            The ids that were stored before.
        """
        if self.vectors:
            self.vectors.write_rows(row_of_chunks(document.rows) for document in documents if document.rows)
        old = self._reader.states(document.doc_id for document in documents)
        in_place = self._in_place(documents, old)
        self._delete({doc_id: state for doc_id, state in old.items() if doc_id not in in_place})
        rows = [
            replacing(document.rows, old[document.doc_id]) if document.doc_id in in_place else document.rows
            for document in documents
        ]
        self._upsert(rows)
        self._finish(documents, {doc_id: old[doc_id] for doc_id in in_place})
        if self.vectors:
            self.vectors.delete(document.doc_id for document in documents if not document.rows)
        return set(old)

    def write_rows(self, rows: Iterable[Row]) -> None:
        """Write documents of a single row."""
        self.write([Prepared(str(row.metadata[DOC]), [row]) for row in rows])

    def delete(self, doc_ids: Iterable[str]) -> int:
        """Delete documents and whatever a crash left of them.

        Returns
        -------
        int
            Rows that belonged to them, also to an incomplete one; 0 for ids that are not stored.
        """
        deleted, doc_ids = 0, list(doc_ids)
        for page in pages(dict.fromkeys(doc_ids), self.limit):
            states = self._reader.states(page)
            for doc_id, state in states.items():
                whole = state.chunks if state.complete else None
                deleted += self._reader.existing(row_ids(doc_id, range(state.rows))) if whole is None else whole
            self._delete(states)
        if self.vectors:
            self.vectors.delete(doc_ids)
        return deleted

    def delete_rows(self, ids: Sequence[str]) -> None:
        """Delete rows by id, in pieces."""
        for piece in pages(ids, self.limit):
            with self._changing(len(piece)):
                self._collection.delete(ids=piece)

    def update(self, metadata: Mapping[str, Mapping[str, Any]]) -> None:
        """Merge metadata into rows by id; ``None`` drops a key."""
        for piece in pages(metadata.items(), self.limit):
            with self._changing(len(piece)):
                self._collection.update(
                    ids=[row for row, _ in piece], metadatas=[dict(values) for _, values in piece]
                )

    def _in_place(self, documents: Sequence[Prepared], old: Mapping[str, State]) -> set[str]:
        """Choose the documents that can be replaced by a single upsert."""
        chosen = {
            document.doc_id
            for document in documents
            if document.rows
            and (state := old.get(document.doc_id)) is not None
            and not state.large
            and max(len(document.rows), state.rows) <= self.limit
        }
        # Chroma 1.5 forgets to save a changed vector when it is the only one in its index: after a restart the
        # old one is back. A deleted and added one is saved.
        return set() if chosen and self._reader.count() == 1 else chosen

    def _delete(self, states: Mapping[str, State]) -> None:
        large = [doc_id for doc_id, state in states.items() if state.large or state.rows > self.limit]
        self.update({row_id(doc_id, 0): {COMPLETE: False} for doc_id in large})
        # From the end, so that row 0 is in the last call.
        groups = (row_ids(doc_id, reversed(range(state.rows))) for doc_id, state in states.items())
        for piece in packed(groups, self.limit):
            with self._changing(len(piece)):
                self._collection.delete(ids=piece)

    def _upsert(self, documents: Iterable[Sequence[Row]]) -> None:
        for piece in packed(documents, self.limit):
            with self._changing(len(piece)):
                self._collection.upsert(
                    ids=[row.id for row in piece],
                    embeddings=np.stack([row.vector for row in piece]),
                    documents=[row.text for row in piece],
                    metadatas=[row.metadata for row in piece],
                )

    def _finish(self, documents: Sequence[Prepared], replaced: Mapping[str, State]) -> None:
        """Delete what the replaced documents had more, and complete the large ones."""
        rest: list[str] = []
        final: dict[str, dict[str, Any]] = {}
        for document in documents:
            doc_id, count = document.doc_id, len(document.rows)
            if doc_id in replaced and replaced[doc_id].rows > count:
                rest += row_ids(doc_id, range(count, replaced[doc_id].rows))
                final[row_id(doc_id, 0)] = {ROWS: None}
            elif count > self.limit:
                final[row_id(doc_id, 0)] = {COMPLETE: True}
        self.delete_rows(rest)
        self.update(final)

    @contextmanager
    def _changing(self, rows: int) -> Iterator[None]:
        from chromadb.errors import ChromaError

        try:
            with self._access.changing(self._collection, rows):
                yield
        except ChromaError as error:
            raise StoreError(
                f"Chroma could not write to collection {self._collection.name!r}: {error}. "
                "Documents that were written before are safe; when the cause is removed, run the same again"
            ) from error


def packed(groups: Iterable[Sequence[T]], limit: int) -> Iterator[list[T]]:
    """Pack groups into pieces of up to ``limit`` items; only a group that is larger than that is cut.

    Examples
    --------
    >>> list(packed(["aa", "bbb", "c", "dddddd"], 4))
    [['a', 'a'], ['b', 'b', 'b', 'c'], ['d', 'd', 'd', 'd'], ['d', 'd']]
    """
    piece: list[T] = []
    for group in groups:
        if len(piece) + len(group) > limit and piece:
            yield piece
            piece = []
        piece.extend(group)
        while len(piece) > limit:
            yield piece[:limit]
            piece = piece[limit:]
    if piece:
        yield piece
