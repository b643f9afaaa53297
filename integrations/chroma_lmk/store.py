"""LandmarkStore: documents of any length in a Chroma collection, one vector a chunk."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from chroma_lmk import metadata as codec
from chroma_lmk import settings
from chroma_lmk.access import Access, access_for
from chroma_lmk.catalog import count_documents, not_found
from chroma_lmk.errors import QueryError, StoreError
from chroma_lmk.hits import DocumentInfo, Hit
from chroma_lmk.ingest import AddReport, Ingest
from chroma_lmk.nearest import Filter, Index
from chroma_lmk.protocols import Encoder
from chroma_lmk.reader import Reader, pages
from chroma_lmk.restore import restore
from chroma_lmk.rows import COMPLETE, DOC, read_state
from chroma_lmk.search import DocumentScore, Per, Query, query_vector, search
from chroma_lmk.settings import DEFAULT_COLLECTION, Space, StoreInfo
from chroma_lmk.verify import VerifyReport, verify
from chroma_lmk.writer import Prepared, Writer
from lmk_embed.errors import ConfigError
from lmk_embed.results import Document, DocumentEmbedding, Vector

if TYPE_CHECKING:
    from chromadb.api import ClientAPI
    from chromadb.api.models.Collection import Collection
    from numpy.typing import ArrayLike

_GET_DOCUMENTS = 64  # documents that get reads at a time


@dataclass(frozen=True, slots=True)
class _Opened:
    """A collection that exists, and what reads it."""

    collection: Collection
    reader: Reader
    index: Index


class LandmarkStore:
    """Documents in a Chroma collection: each chunk a row with its own vector, found one by one or together.

    A collection belongs to one encoder. Opening it with another one is refused. On a local path one process
    writes at a time; it holds a lock from its first write until the store is closed. Others can read meanwhile
    and see what is written, but pay for loading the index again after each change: where that matters, run a
    server (``chroma run``) and give its ``chromadb.HttpClient``. All methods may be called from several threads.

    Parameters
    ----------
    client_or_path : ClientAPI, str or Path
        A path is opened with ``chromadb.PersistentClient``, and closed with the store. A client is used as it is.
    collection : str
        Chroma's rules: 3 to 512 of the characters ``a-z A-Z 0-9 . _ -``. It is made with the first document.
    encoder : Encoder
        A ``LandmarkEncoder``, or anything with the same methods.
    space : {"cosine", "ip", "l2"}, optional
        Distance Chroma orders by, for a new collection; "cosine" unless given. Scores are cosines in all three.

    Raises
    ------
    FingerprintMismatchError
        If the collection was made with another encoder. Nothing was written or embedded.
    NotALandmarkCollectionError
        If something else made the collection.
    MissingExtraError
        If chromadb is not installed.

    Examples
    --------
    >>> from lmk_embed import Document, LandmarkEncoder
    >>> encoder = LandmarkEncoder.from_pretrained()  # doctest: +SKIP
    >>> with LandmarkStore("library.db", "lmk", encoder) as store:  # doctest: +SKIP
    ...     store.add([Document("lease", open("lease.txt").read(), {"year": 2026})])
    ...     hit = store.search("When is the rent due?", k=3, where={"year": 2026})[0]
    ...     print(hit.doc_id, hit.start, hit.end, hit.text)
    """

    def __init__(
        self,
        client_or_path: ClientAPI | str | Path,
        collection: str = DEFAULT_COLLECTION,
        encoder: Encoder | None = None,
        *,
        space: Space | None = None,
    ) -> None:
        if encoder is None:
            raise TypeError(
                "LandmarkStore needs an encoder; to use the one that an existing collection remembers, call "
                "LandmarkStore.open(client_or_path, collection)"
            )
        self._encoder = encoder
        self._info = StoreInfo.of(encoder, collection, space or "cosine")
        self._client, self._owned = settings.connect(client_or_path, create=True)
        self._access = access_for(self._client)
        self._opened: _Opened | None = None
        self._lock = threading.RLock()  # one write of this store at a time: look-up and change belong together
        self._writing = self._closed = False
        try:
            if self._find() is not None and space not in (None, self._info.space):
                raise ConfigError(f"collection {collection!r} has space {self._info.space!r}, not {space!r}")
        except BaseException:
            self.close()
            raise

    @classmethod
    def open(
        cls,
        client_or_path: ClientAPI | str | Path,
        collection: str = DEFAULT_COLLECTION,
        *,
        load_encoder: Callable[[dict[str, Any]], Encoder] | None = None,
    ) -> LandmarkStore:
        """Open an existing collection with the encoder it remembers.

        Parameters
        ----------
        client_or_path : ClientAPI, str or Path
        collection : str
        load_encoder : callable, optional
            Builds an encoder from the result of its ``to_dict``; ``LandmarkEncoder.from_dict`` unless given.

        Returns
        -------
        LandmarkStore

        Raises
        ------
        StoreNotFoundError
            If there is no database at the path, or no such collection in it.
        FingerprintMismatchError
            If the model it names has changed since.
        """
        client, owned = settings.connect(client_or_path, create=False)
        try:
            found = settings.find(client, collection)
            if found is None:
                raise not_found(client, collection)
            store = cls(client, collection, settings.rebuild_encoder(found[1], load_encoder))
        except BaseException:
            if owned:
                settings.close(client)
            raise
        store._owned = owned
        return store

    @property
    def info(self) -> StoreInfo:
        """What the collection remembers, or will remember once it holds a document."""
        return self._info

    @property
    def encoder(self) -> Encoder:
        """The encoder of the documents and the queries."""
        return self._encoder

    @property
    def collection(self) -> Collection | None:
        """Chroma's own object, to read what this class does not offer; None before the first document."""
        opened = self._find()
        return opened.collection if opened else None

    def lock(self) -> None:
        """Become the writing process now, before the work of embedding, rather than at the first write.

        Raises
        ------
        StoreLockedError
            If another process is writing to the database.
        """
        with self._lock:
            self._claim()

    def add(
        self,
        documents: Iterable[Document],
        *,
        skip_unchanged: bool = False,
        on_encoded: Callable[[DocumentEmbedding], object] | None = None,
    ) -> AddReport:
        """Store documents; one that is known by its id is replaced exactly.

        The documents are read one after the other, embedded once, and written some 2,000 chunks at a time. Killed
        at any instant and run again, the collection ends up with the same rows. Reading the ids of a very long
        stream takes memory for the ids, nothing else grows.

        Parameters
        ----------
        documents : iterable of Document
            A list or tuple is checked as a whole before anything is embedded, a stream in batches of 64: if a
            document of a batch cannot be stored, no document of that batch is, but those before it are.
        skip_unchanged : bool
            Whether to skip documents whose text and metadata are stored already. They are not embedded.
        on_encoded : callable, optional
            Told of each document once it is embedded, to show progress.

        Returns
        -------
        AddReport

        Raises
        ------
        MetadataError
            Naming every bad key of every document of the batch.
        DuplicateIdError
            If the same id comes twice.
        DocumentError
            If an id is empty, or a text is not a string or holds lone surrogates.
        StoreLockedError
            If another process is writing to the database.
        StoreError
            If Chroma could not write, for example because the disk is full.
        """
        digests = self.digests if skip_unchanged else None
        return Ingest(self._encoder, self._write, self._limit(), digests, on_encoded).run(documents)

    def delete(self, ids: Iterable[str]) -> int:
        """Delete documents.

        Parameters
        ----------
        ids : iterable of str
            Ids that are not stored are no error.

        Returns
        -------
        int
            How many chunk rows belonged to them: 5 for a document of five chunks, 0 for an unknown one.

        Raises
        ------
        StoreLockedError
            If another process is writing to the database.
        """
        ids = _id_list(ids)
        with self._lock:
            if not ids or self._find() is None:
                return 0
            return self._writer().delete(ids)

    def get(self, ids: Iterable[str]) -> list[Document]:
        """Give documents back as they were added, text and metadata exact to the character.

        Parameters
        ----------
        ids : iterable of str

        Returns
        -------
        list of Document
            In the order of the ids, without those that are not stored or not completely.

        Raises
        ------
        DamagedStoreError
            If rows of a document are missing or were changed by something else.
        """
        wanted, opened = _id_list(ids), self._find()
        if opened is None:
            return []
        return [each for page in pages(wanted, _GET_DOCUMENTS) for each in restore(opened.reader, page)]

    def count(self, per: Literal["chunk", "document"] = "chunk") -> int:
        """Count what is stored.

        Parameters
        ----------
        per : {"chunk", "document"}
            Chunks are counted by Chroma, at once; rows that a crash left over count until the document is added
            again or ``verify`` is run. Documents are counted one by one, only complete ones.

        Returns
        -------
        int
        """
        if per not in ("chunk", "document"):
            raise ConfigError(f"per must be chunk or document, got {per!r}")
        opened = self._find()
        if opened is None:
            return 0
        return opened.reader.count() if per == "chunk" else count_documents(opened.reader)

    def documents(self) -> Iterator[DocumentInfo]:
        """Yield all complete documents without their texts, in the order of writing; read page by page."""
        opened = self._find()
        for _, stored in opened.reader.scan({COMPLETE: True}) if opened else ():
            state = read_state(stored)
            yield DocumentInfo(str(stored[DOC]), codec.decode(stored), state.chunks, state.digest)

    def digests(self, ids: Iterable[str]) -> dict[str, str]:
        """Return the digests of those documents that are stored completely, for a quick look at what has changed.

        Parameters
        ----------
        ids : iterable of str

        Returns
        -------
        dict of str to str
            Compare with ``document_digest(document)``.
        """
        opened = self._find()
        states = opened.reader.states(_id_list(ids)) if opened else {}
        return {doc_id: state.digest for doc_id, state in states.items() if state.complete}

    def search(
        self,
        query: str | ArrayLike,
        k: int = 5,
        *,
        per: Per = "chunk",
        where: Filter | None = None,
        where_document: Filter | None = None,
        min_score: float | None = None,
        document_score: DocumentScore = "max",
        max_chars: int = 1_000,
    ) -> list[Hit]:
        """Find what answers a query.

        Parameters
        ----------
        query : str or array_like of shape (D,)
            A text, or a vector of any length other than zero.
        k : int
            How many hits to return; fewer only if there are no more.
        per : {"chunk", "passage", "document"}
            A hit is a chunk; neighbouring chunks joined and widened with what surrounds them; or a document, with
            the span of its best chunk.
        where : mapping, optional
            Chroma's filter on the caller's metadata, applied before anything is ranked or grouped. Values that
            Chroma cannot hold (None, mappings, mixed lists) cannot be filtered by.
        where_document : mapping, optional
            Chroma's filter on the text of a chunk.
        min_score : float, optional
            Leave out hits below this cosine.
        document_score : {"max", "mean", "document_vector"}
            For documents: the cosine of the best chunk; the mean over all chunks; or the cosine with the vector of
            the document, as the encoder gives it. The last two rank the documents that own the best chunks, at
            least ``4 * k`` of them, and read all their vectors.
        max_chars : int
            For passages: most characters. Only a single chunk may be longer; passages consist of whole chunks.

        Returns
        -------
        list of Hit
            Best first; equal scores in the order of document id and chunk.

        Raises
        ------
        QueryError
            If the query is blank or has another dimension, or a setting is impossible.
        """
        vector = query_vector(self._embed(query) if isinstance(query, str) else query, self._info.dimension)
        asked = Query(vector, k, per, where, where_document, min_score, document_score, max_chars)
        opened = self._find()
        return search(opened.reader, opened.index, asked) if opened else []

    def verify(self, *, repair: bool = False) -> VerifyReport:
        """Read all rows, and find those that a crash or something else left behind.

        Parameters
        ----------
        repair : bool
            Whether to delete them. Documents that are not whole are deleted, too; add them again.

        Returns
        -------
        VerifyReport
        """
        opened = self._find()
        if opened is None:
            return VerifyReport()
        if not repair:
            return verify(opened.reader)
        with self._lock:
            return verify(opened.reader, self._writer())

    def close(self) -> None:
        """Let other processes write, and close the database if this store opened it. May be called again."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            if self._writing:
                self._access.release()
            self._access.close()
            if self._owned:
                settings.close(self._client)

    def __enter__(self) -> LandmarkStore:
        """Return the store."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the store."""
        self.close()

    def _find(self) -> _Opened | None:
        """Open the collection if it exists by now, and check that it belongs to the encoder."""
        if self._closed:
            raise StoreError("the store is closed")
        if self._opened is None and (found := settings.find(self._client, self._info.collection)):
            collection, info = found
            settings.check(info, self._info.fingerprint)
            self._info = info
            self._opened = _open(collection, info, self._access)
        return self._opened

    def _writer(self) -> Writer:
        """Become the writer of the database, and make the collection if need be; the lock is held."""
        self._claim()
        opened = self._find()
        if opened is None:
            with self._access.changing(None):
                collection = settings.create(self._client, self._info)
            opened = self._opened = _open(collection, self._info, self._access)
        return Writer(opened.collection, self._access, opened.reader, self._limit())

    def _claim(self) -> None:
        if not self._writing:
            self._access.acquire()
            self._writing = True

    def _write(self, documents: Sequence[Prepared]) -> set[str]:
        with self._lock:
            if self._find() is None and not any(document.rows for document in documents):
                return set()
            return self._writer().write(documents)

    def _limit(self) -> int:
        return int(self._client.get_max_batch_size())

    def _embed(self, text: str) -> Vector:
        if not text.strip():
            raise QueryError("the query is blank; there is nothing to search for")
        vector: Vector = self._encoder.encode_queries([text])[0]
        return vector


def _open(collection: Collection, info: StoreInfo, access: Access) -> _Opened:
    reader = Reader(collection, access)
    return _Opened(collection, reader, Index(reader, info.space))


def _id_list(ids: Iterable[str]) -> list[str]:
    if isinstance(ids, str):
        raise TypeError(f"expected an iterable of document ids, got the string {ids!r}; pass [{ids!r}]")
    return list(ids)
