"""Reading rows by id, by page or by query, always from an index that is up to date."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from chroma_lmk.access import Access
from chroma_lmk.errors import DamagedStoreError, StoreError, StoreNotFoundError
from chroma_lmk.rows import State, StoredRow, read_row, read_state, row_id
from lmk_embed.results import Vector

if TYPE_CHECKING:
    from chromadb.api.models.Collection import Collection

T = TypeVar("T")

# Chroma binds every id of a call to a variable of SQLite, which has 32,766.
PAGE = 5_000
# Its tables name a row that its index does not have yet, or it has no index yet: as a rule, a write is under way.
_BEHIND = ("finding id", "Nothing found on disk")
_PATIENCE_SECONDS = 30.0
_PAUSE_SECONDS = 0.02


class Reader:
    """Reads one collection; safe to use from several threads.

    Parameters
    ----------
    collection : Collection
    access : Access
    """

    def __init__(self, collection: Collection, access: Access) -> None:
        self._collection = collection
        self._access = access

    def count(self) -> int:
        """Return the number of rows."""
        return self._call(self._collection.count)

    def query(self, **arguments: Any) -> dict[str, Any]:
        """Run a query of Chroma's."""
        return dict(self._call(lambda: self._collection.query(**arguments)))

    def pages(self, **arguments: Any) -> Iterator[dict[str, Any]]:
        """Yield what a ``get`` of Chroma's returns, page by page in the order of writing.

        Rows that are deleted meanwhile may make it skip others.
        """
        for offset in range(0, 2**62, PAGE):
            found = self._get(limit=PAGE, offset=offset, **arguments)
            yield found
            if len(found["ids"]) < PAGE:
                return

    def scan(self, where: Mapping[str, Any] | None = None) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Yield id and metadata of every row that matches."""
        for page in self.pages(where=where, include=["metadatas"]):
            yield from zip(page["ids"], page["metadatas"], strict=True)

    def states(self, doc_ids: Iterable[str], where: Mapping[str, Any] | None = None) -> dict[str, State]:
        """Return what row 0 says, for the documents that have one, or one that matches."""
        wanted = {row_id(doc_id, 0): doc_id for doc_id in doc_ids}
        return {
            wanted[row]: read_state(metadata)
            for page in self._by_id(list(wanted), ["metadatas"], where)
            for row, metadata in zip(page["ids"], page["metadatas"], strict=True)
        }

    def rows(self, ids: Sequence[str], scores: Mapping[str, float] = MappingProxyType({})) -> dict[str, StoredRow]:
        """Return rows by id, without those that are missing or dead."""
        return {
            name: row
            for page in self._by_id(ids, ["metadatas", "documents"])
            for name, text, metadata in zip(page["ids"], page["documents"], page["metadatas"], strict=True)
            if (row := read_row(text, metadata, scores.get(name, 0.0))) is not None
        }

    def vectors(self, ids: Sequence[str]) -> dict[str, Vector]:
        """Return the vectors of rows by id, without those that are missing."""
        vectors: dict[str, Vector] = {}
        for page in self._by_id(ids, ["embeddings"]):
            vectors |= zip(page["ids"], np.asarray(page["embeddings"], dtype=np.float32), strict=True)
        return vectors

    def rows_and_vectors(self, ids: Sequence[str]) -> dict[str, tuple[StoredRow, Vector]]:
        """Return rows with their vectors by id, without those that are missing or dead."""
        return {
            row_id(row.doc_id, row.chunk): (row, np.asarray(vector, dtype=np.float32))
            for page in self._by_id(ids, ["metadatas", "documents", "embeddings"])
            for text, metadata, vector in zip(
                page["documents"], page["metadatas"], page["embeddings"], strict=True
            )
            if (row := read_row(text, metadata)) is not None
        }

    def existing(self, ids: Sequence[str]) -> int:
        """Return how many rows of these ids exist."""
        return sum(len(page["ids"]) for page in self._by_id(ids, []))

    def _by_id(
        self, ids: Sequence[str], include: list[str], where: Mapping[str, Any] | None = None
    ) -> Iterator[dict[str, Any]]:
        for page in pages(ids, PAGE):
            yield self._get(ids=page, include=include, where=dict(where) if where else None)

    def _get(self, **arguments: Any) -> dict[str, Any]:
        return dict(self._call(lambda: self._collection.get(**arguments)))

    def _call(self, read: Callable[[], T]) -> T:
        from chromadb.errors import InternalError, NotFoundError

        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            self._access.refresh(self._collection)
            try:
                return read()
            except NotFoundError:
                raise StoreNotFoundError(
                    f"collection {self._collection.name!r} was deleted while it was open; open it again"
                ) from None
            except InternalError as error:
                if not any(sign in str(error) for sign in _BEHIND):
                    raise StoreError(f"Chroma cannot read {self._collection.name!r}: {error}") from error
                if time.monotonic() > deadline:
                    raise DamagedStoreError(
                        f"the index of collection {self._collection.name!r} lacks rows that its tables have; "
                        "index the documents again (lmk index --rebuild)"
                    ) from error
            time.sleep(_PAUSE_SECONDS)


def pages(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Cut a stream into lists of up to ``size`` items.

    Examples
    --------
    >>> list(pages("abcde", 2))
    [['a', 'b'], ['c', 'd'], ['e']]
    """
    rest = iter(items)
    while page := list(islice(rest, size)):
        yield page
