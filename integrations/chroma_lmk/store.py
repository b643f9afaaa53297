"""LandmarkStore: documents of any length in a Chroma collection, one vector a chunk."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from chroma_lmk import metadata as codec
from chroma_lmk import settings
from chroma_lmk.async_methods import AsyncMethods
from chroma_lmk.catalog import count_documents, not_found
from chroma_lmk.errors import QueryError
from chroma_lmk.hits import DocumentInfo, Hit
from chroma_lmk.ingest import AddReport, Ingest
from chroma_lmk.maintenance import Maintenance, id_list
from chroma_lmk.nearest import Filter
from chroma_lmk.protocols import Encoder
from chroma_lmk.reader import pages
from chroma_lmk.restore import restore
from chroma_lmk.rows import COMPLETE, DOC, read_state, row_id
from chroma_lmk.search import DocumentScore, Per, Query, query_vector, search
from chroma_lmk.session import Session
from chroma_lmk.settings import DEFAULT_COLLECTION, Space, StoreInfo
from lmk_embed.errors import ConfigError, LandmarkError
from lmk_embed.results import Document, DocumentEmbedding, Matrix, Vector

if TYPE_CHECKING:
    from chromadb.api import ClientAPI
    from chromadb.api.models.Collection import Collection
    from numpy.typing import ArrayLike

_GET_DOCUMENTS = 64  # documents that get reads at a time


class LandmarkStore(Maintenance, AsyncMethods):
    """Documents in a Chroma collection: each chunk a row with its own vector, found one by one or together.

    A collection belongs to one encoder. Opening it with another one is refused. On a local path one process
    writes at a time; it holds a lock from its first write until the store is closed. Others can read meanwhile
    and see what is written, but pay for loading the index again after each change: where that matters, run a
    server (``chroma run``) and give its ``chromadb.HttpClient``. All methods may be called from several threads;
    those whose names begin with ``a`` are for asyncio.

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
    document_vectors : bool, optional
        Whether a new collection keeps the vectors of whole documents, too, in a second collection
        (``info.vectors_collection``), which makes ``document_score="document_vector"`` rank all documents.

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
        document_vectors: bool | None = None,
    ) -> None:
        if encoder is None:
            raise TypeError(
                "LandmarkStore needs an encoder; to use the one that an existing collection remembers, call "
                "LandmarkStore.open(client_or_path, collection)"
            )
        self._encoder = encoder
        info = StoreInfo.of(encoder, collection, space or "cosine", document_vectors=bool(document_vectors))
        client, owned = settings.connect(client_or_path, create=True)
        self._session = Session(client, info)
        self._session.owned = owned
        weakref.finalize(self, self._session.close)
        try:
            self._session.find()
            if space not in (None, self.info.space):
                raise ConfigError(f"collection {collection!r} has space {self.info.space!r}, not {space!r}")
            if document_vectors not in (None, self.info.document_vectors):
                raise ConfigError(
                    f"collection {collection!r} was made {'without' if document_vectors else 'with'} document "
                    "vectors; to change that, export() it and import_() the file into a new collection"
                )
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
        store._session.owned = owned
        return store

    @property
    def info(self) -> StoreInfo:
        """What the collection remembers, or will remember once it holds a document."""
        return self._session.info

    @property
    def encoder(self) -> Encoder:
        """The encoder of the documents and the queries."""
        return self._encoder

    @property
    def collection(self) -> Collection | None:
        """Chroma's own object, to read what this class does not offer; None before the first document."""
        opened = self._session.find()
        return opened.collection if opened else None

    def lock(self) -> None:
        """Become the writing process now, before the work of embedding, rather than at the first write.

        Raises
        ------
        StoreLockedError
            If another process is writing to the database.
        """
        with self._session.lock:
            self._session.claim()

    def add(
        self,
        documents: Iterable[Document],
        *,
        skip_unchanged: bool = False,
        on_encoded: Callable[[DocumentEmbedding], object] | None = None,
    ) -> AddReport:
        """Store documents; one that is known by its id is replaced exactly.

        The documents are read one after the other, embedded once, and written some 5,000 chunks at a time. Killed
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
        return Ingest(self._encoder, self._write, self._session.limit(), digests, on_encoded).run(documents)

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
        ids = id_list(ids)
        with self._session.lock:
            if not ids or self._session.find() is None:
                return 0
            return self._session.writer().delete(ids)

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
        wanted, opened = id_list(ids), self._session.find()
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
        opened = self._session.find()
        if opened is None:
            return 0
        return opened.reader.count() if per == "chunk" else count_documents(opened.reader)

    def documents(self) -> Iterator[DocumentInfo]:
        """Yield all complete documents without their texts, in the order of writing; read page by page."""
        opened = self._session.find()
        for _, stored in opened.reader.scan({COMPLETE: True}) if opened else ():
            state = read_state(stored)
            yield DocumentInfo(str(stored[DOC]), codec.decode(stored), state.chunks, state.digest)

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
        max_tokens: int | None = None,
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
            the document, as the encoder gives it. The last two rank the ``4 * k`` documents that own the best
            chunks, and read all their vectors; only a store with ``document_vectors`` ranks all documents by the
            last one, unless there is a filter on the text of chunks.
        max_chars : int
            For passages: most characters. Only a single chunk may be longer. A passage grows by whole sentences.
        max_tokens : int, optional
            Search coarser spans in place of chunks: neighbouring chunks joined up to so many tokens, with the
            vectors that ``DocumentEmbedding.merge(max_tokens)`` gives. It ranks all spans of the documents that
            own the best chunks, ``4 * k`` but not fewer than 20, and reads all their rows, which takes its time:
            about 0.15 ms for each.

        Returns
        -------
        list of Hit
            Best first; equal scores in the order of document id and chunk.

        Raises
        ------
        QueryError
            If the query is blank or has another dimension, or a setting is impossible.
        """
        vector = query_vector(self._embed(query) if isinstance(query, str) else query, self.info.dimension)
        asked = Query(
            vector,
            k,
            per,
            where=where,
            where_document=where_document,
            min_score=min_score,
            document_score=document_score,
            max_chars=max_chars,
            max_tokens=max_tokens,
            language=self.info.language,
        )
        opened = self._session.find()
        if not opened:
            return []
        try:
            vectors = opened.vectors.index if opened.vectors else None
            return search(opened.reader, opened.index, asked, vectors)
        except LandmarkError:
            raise
        except (TypeError, ValueError) as error:
            # Chroma checks filters itself; what else comes from a caller was checked above.
            raise QueryError(f"where or where_document is no filter that Chroma takes: {error}") from error

    def vectors(self, hits: Sequence[Hit]) -> Matrix:
        """Return the vector of each hit's best chunk, to compare hits with each other.

        Parameters
        ----------
        hits : sequence of Hit
            From this store.

        Returns
        -------
        ndarray of float32, shape (len(hits), D)
            Unit length; zeros where the chunk was deleted since.
        """
        ids = [row_id(hit.doc_id, hit.matches[0].chunk) for hit in hits]
        opened = self._session.find()
        found = opened.reader.vectors(ids) if opened else {}
        vectors = np.zeros((len(ids), self.info.dimension), dtype=np.float32)
        for row, each in enumerate(ids):
            vectors[row] = found.get(each, 0)
        return vectors

    def close(self) -> None:
        """Let other processes write, and close the database if this store opened it. May be called again."""
        self._session.close()

    def __enter__(self) -> LandmarkStore:
        """Return the store."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the store."""
        self.close()

    def _embed(self, text: str) -> Vector:
        if not text.strip():
            raise QueryError("the query is blank; there is nothing to search for")
        vector: Vector = self._encoder.encode_queries([text])[0]
        return vector
