"""An open database and one collection of it: found late, written by one, closed once."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from chroma_lmk import settings
from chroma_lmk.access import Access, access_for
from chroma_lmk.errors import StoreError
from chroma_lmk.nearest import Index
from chroma_lmk.reader import Reader
from chroma_lmk.settings import StoreInfo
from chroma_lmk.writer import Writer

if TYPE_CHECKING:
    from chromadb.api import ClientAPI
    from chromadb.api.models.Collection import Collection


@dataclass(frozen=True, slots=True)
class Opened:
    """A collection that exists, and what reads it."""

    collection: Collection
    reader: Reader
    index: Index
    vectors: Opened | None = None  # of whole documents


class Session:
    """What a store knows about its database.

    Parameters
    ----------
    client : ClientAPI
    info : StoreInfo
        What the collection is to remember if it does not exist yet.

    Attributes
    ----------
    owned : bool
        Whether the client is closed with the session.
    lock : RLock
        Held by whoever writes through this session: look-up and change belong together.
    """

    def __init__(self, client: ClientAPI, info: StoreInfo) -> None:
        self.client = client
        self.info = info
        self.owned = False
        self.access: Access = access_for(client)
        self.lock = threading.RLock()
        self._opened: Opened | None = None
        self._writing = self._closed = False

    def find(self) -> Opened | None:
        """Open the collection if it exists by now, and check that it belongs to the encoder."""
        if self._closed:
            raise StoreError("the store is closed")
        if self._opened is None and (found := settings.find(self.client, self.info.collection)):
            settings.check(found[1], self.info.fingerprint)
            self.info = found[1]
            self._opened = self._open(found[0])
        return self._opened

    def claim(self) -> None:
        """Become the writer of the database; the lock is held."""
        if self._closed:
            raise StoreError("the store is closed")
        if not self._writing:
            self.access.acquire()
            self._writing = True

    def writer(self) -> Writer:
        """Become the writer of the database, and make the collection if need be; the lock is held."""
        self.claim()
        opened = self.find()
        if opened is None:
            with self.access.changing(None):
                collection = settings.create(self.client, self.info)
            opened = self._opened = self._open(collection)
        vectors, limit = opened.vectors, self.limit()
        return Writer(
            opened.collection,
            self.access,
            opened.reader,
            limit,
            Writer(vectors.collection, self.access, vectors.reader, limit) if vectors else None,
        )

    def limit(self) -> int:
        """Return how many rows the server takes in one call."""
        return int(self.client.get_max_batch_size())

    def close(self) -> None:
        """Let other processes write, and close the client if it is owned; may be called again."""
        with self.lock:
            if self._closed:
                return
            self._closed = True
            if self._writing:
                self.access.release()
            self.access.close()
            if self.owned:
                settings.close(self.client)

    def _open(self, collection: Collection) -> Opened:
        reader = Reader(collection, self.access)
        return Opened(collection, reader, Index(reader, self.info.space), self._open_vectors())

    def _open_vectors(self) -> Opened | None:
        if not self.info.document_vectors:
            return None
        collection = settings.find_vectors(self.client, self.info)
        if collection is None:
            raise StoreError(
                f"the document vectors of {self.info.collection!r} are gone: something has deleted the collection "
                f"{self.info.vectors_collection!r}. Index the documents again (lmk index --rebuild)"
            )
        reader = Reader(collection, self.access)
        return Opened(collection, reader, Index(reader, "cosine"))
