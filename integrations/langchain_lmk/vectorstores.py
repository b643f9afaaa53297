"""LandmarkVectorStore: LangChain's vector store on a LandmarkStore."""

from __future__ import annotations

import threading
import uuid
import warnings
from asyncio import CancelledError
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.runnables import run_in_executor
from langchain_core.vectorstores import VectorStore
from langchain_core.vectorstores.utils import maximal_marginal_relevance

from chroma_lmk import DEFAULT_COLLECTION, Hit, LandmarkStore
from chroma_lmk.search import Per
from langchain_lmk.embeddings import LMKEmbeddings
from langchain_lmk.keys import document_key
from langchain_lmk.results import scored_documents
from lmk_embed import Document as StoredDocument
from lmk_embed import LandmarkEncoder
from lmk_embed.errors import missing_extra

if TYPE_CHECKING:
    from chromadb.api import ClientAPI


class LandmarkVectorStore(VectorStore):
    """Documents of any length; found by their chunks, each embedded in the context of its Document.

    There is no need to split Documents before they are added. A search returns chunks, passages or Documents
    (``per``). A part of a Document carries its span under ``metadata["lmk:span"]``, see ``span``; a Document that
    is short enough to be a single chunk is returned exactly as it was added. Ids are those of Documents: adding a
    known one replaces it. Methods with an ``a`` in front leave the event loop free.

    Parameters
    ----------
    embedding : LMKEmbeddings, optional
        The bundled model unless given.
    collection_name : str, optional
        Chroma's rules; "lmk" unless given, and a name of its own for a store in memory.
    persist_directory : str or Path, optional
        Where to keep the database; in memory unless given.
    client : ClientAPI, optional
        A Chroma client to use instead, such as ``chromadb.HttpClient``.
    per : {"chunk", "passage", "document"}
        What a search returns unless it says so itself; see ``LandmarkStore.search``.

    Raises
    ------
    FingerprintMismatchError
        If the collection was made with another model or other settings. Nothing was written or embedded.
    TypeError
        If the embeddings are not an LMKEmbeddings.

    Examples
    --------
    >>> store = LandmarkVectorStore.from_texts(["Rent is due on the third working day.", "Pets are allowed."],
    ...                                        LMKEmbeddings(), ids=["rent", "pets"])
    >>> store.similarity_search("When do I have to pay?", k=1)
    [Document(id='rent', metadata={}, page_content='Rent is due on the third working day.')]
    """

    def __init__(
        self,
        embedding: Embeddings | None = None,
        *,
        collection_name: str | None = None,
        persist_directory: str | Path | None = None,
        client: ClientAPI | None = None,
        per: Per = "chunk",
    ) -> None:
        embedding = LMKEmbeddings() if embedding is None else embedding
        if not isinstance(embedding, LMKEmbeddings):
            raise TypeError(
                f"LandmarkVectorStore needs LMKEmbeddings, got {type(embedding).__name__}: only a landmark "
                "encoder gives vectors of chunks in context. Other embeddings work with langchain_chroma.Chroma."
            )
        if client is not None and persist_directory is not None:
            raise TypeError("give either client or persist_directory, not both")
        if client is None and persist_directory is None:
            # Chroma's databases in memory are one database; a name of its own keeps stores apart.
            client, collection_name = _memory(), collection_name or f"lmk-{uuid.uuid4().hex}"
        place = client if persist_directory is None else persist_directory
        assert place is not None
        self._store = LandmarkStore(place, collection_name or DEFAULT_COLLECTION, embedding.encoder)
        self._embeddings: LMKEmbeddings | None = embedding
        self._per = per

    @classmethod
    def from_store(cls, store: LandmarkStore, *, per: Per = "chunk") -> Self:
        """Wrap a store that is open already, such as ``LandmarkStore.open("library.db")``.

        The way to a collection with settings of its own: ``LandmarkStore(..., document_vectors=True)``.
        """
        made = cls.__new__(cls)
        made._store, made._per = store, per
        encoder = store.encoder
        made._embeddings = LMKEmbeddings.from_encoder(encoder) if isinstance(encoder, LandmarkEncoder) else None
        return made

    @classmethod
    def from_texts(
        cls,
        texts: list[str],
        embedding: Embeddings,
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: list[str] | None = None,
        **kwargs: Any,
    ) -> Self:
        """Make a store and add texts to it.

        Parameters
        ----------
        texts : list of str
        embedding : LMKEmbeddings
        metadatas : list of dict, optional
        ids : list of str, optional
        **kwargs
            Of the constructor.

        Returns
        -------
        LandmarkVectorStore
        """
        store = cls(embedding, **kwargs)
        try:
            store.add_texts(texts, metadatas, ids=ids)
        except BaseException:
            store.close()
            raise
        return store

    @property
    def store(self) -> LandmarkStore:
        """The store beneath, for what LangChain has no method for."""
        return self._store

    @property
    def embeddings(self) -> LMKEmbeddings | None:
        """The embeddings of Documents and queries."""
        return self._embeddings

    def document_key(self, document: Document) -> str:
        """Return a key for LangChain's ``index(..., key_encoder=store.document_key)`` that changes with the model.

        Parameters
        ----------
        document : Document

        Returns
        -------
        str
        """
        return document_key(self._store.info.fingerprint, document)

    def add_texts(
        self,
        texts: Iterable[str],
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: list[str] | None = None,
        **kwargs: Any,
    ) -> list[str]:
        """Add texts; see :meth:`add_documents`."""
        return self.add_documents(_documents(texts, metadatas), ids=ids, **kwargs)

    async def aadd_texts(
        self,
        texts: Iterable[str],
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: list[str] | None = None,
        **kwargs: Any,
    ) -> list[str]:
        """Add texts without blocking the event loop; see :meth:`add_documents`."""
        return await self.aadd_documents(_documents(texts, metadatas), ids=ids, **kwargs)

    def add_documents(
        self,
        documents: list[Document],
        *,
        ids: Sequence[str | None] | None = None,
        batch_size: int | None = None,
        **kwargs: Any,
    ) -> list[str]:
        """Add Documents of any length; one with a known id is replaced.

        Parameters
        ----------
        documents : list of Document
        ids : sequence of str or None, optional
            One for each Document; those of the Documents unless given. What has none gets a new one.
        batch_size : int, optional
            For ``index``, which passes it; it changes nothing, since batches are cut by tokens.
        **kwargs
            Of ``LandmarkStore.add``, such as ``skip_unchanged=True``.

        Returns
        -------
        list of str
            The ids, in the same order.

        Raises
        ------
        ValueError
            If there are more or fewer ids than Documents.
        MetadataError, DuplicateIdError, DocumentError, StoreLockedError
            See ``LandmarkStore.add``; nothing of the call was stored.
        """
        documents = list(documents)
        given = [document.id for document in documents] if ids is None else ids
        if len(given) != len(documents):
            raise ValueError(f"got {len(given)} ids for {len(documents)} documents")
        known = [each or str(uuid.uuid4()) for each in given]
        report = self._store.add(
            [
                StoredDocument(each, document.page_content, document.metadata)
                for each, document in zip(known, documents, strict=True)
            ],
            **kwargs,
        )
        if report.blank:
            warnings.warn(
                f"{len(report.blank)} of {len(documents)} documents are blank and not stored, among them "
                f"{report.blank[0]!r}",
                stacklevel=2,
            )
        return known

    async def aadd_documents(self, documents: list[Document], **kwargs: Any) -> list[str]:
        """Add Documents without blocking the event loop; cancelling stops after the Document being embedded."""
        cancelled = threading.Event()

        def stop(_: object) -> None:
            if cancelled.is_set():
                raise RuntimeError("cancelled")  # nobody is waiting for it any more

        try:
            return await run_in_executor(None, self.add_documents, documents, on_encoded=stop, **kwargs)
        except CancelledError:
            cancelled.set()
            raise

    def delete(self, ids: list[str] | None = None, **kwargs: Any) -> bool:
        """Delete Documents.

        Parameters
        ----------
        ids : list of str, optional
            Ids that are not stored are no error. None: all Documents.

        Returns
        -------
        bool
            True.

        Raises
        ------
        TypeError
            If there are other arguments, which could have been meant to spare some Documents.
        """
        if kwargs:
            raise TypeError(f"delete knows ids only, got {', '.join(kwargs)}")
        self._store.delete([each.id for each in self._store.documents()] if ids is None else ids)
        return True

    def get_by_ids(self, ids: Sequence[str], /) -> list[Document]:
        """Return Documents as they were added, without those that are not stored."""
        return [Document(each.text, id=each.id, metadata=dict(each.metadata)) for each in self._store.get(ids)]

    def similarity_search(self, query: str, k: int = 4, **kwargs: Any) -> list[Document]:
        """Find what answers a query; see :meth:`similarity_search_with_score`."""
        return [document for document, _ in self.similarity_search_with_score(query, k, **kwargs)]

    def similarity_search_by_vector(self, embedding: list[float], k: int = 4, **kwargs: Any) -> list[Document]:
        """Find what is nearest to a vector; see :meth:`similarity_search_with_score`."""
        return [document for document, _ in self._scored(embedding, k, **kwargs)]

    def similarity_search_with_score(self, query: str, k: int = 4, **kwargs: Any) -> list[tuple[Document, float]]:
        """Find what answers a query, with scores.

        Parameters
        ----------
        query : str
        k : int
            How many results to return; fewer only if there are no more.
        filter : mapping, optional
            Chroma's filter on metadata, such as ``{"year": {"$gte": 2020}}``.
        per : {"chunk", "passage", "document"}, optional
            What to return; that of the store unless given.
        **kwargs
            ``where_document``, ``min_score``, ``document_score``, ``max_chars`` and ``max_tokens`` of
            ``LandmarkStore.search``.

        Returns
        -------
        list of (Document, float)
            Best first. The score is the cosine with the query in [-1, 1], higher is better, whatever the space
            of the collection.

        Raises
        ------
        QueryError
            If the query is blank, or a setting is impossible.
        """
        return self._scored(query, k, **kwargs)

    def _select_relevance_score_fn(self) -> Callable[[float], float]:
        # LangChain's relevance is in [0, 1]: what points away from the query is no more irrelevant than the rest.
        return lambda cosine: max(0.0, cosine)

    def max_marginal_relevance_search(
        self, query: str, k: int = 4, fetch_k: int = 20, lambda_mult: float = 0.5, **kwargs: Any
    ) -> list[Document]:
        """Find what answers a query, and differs from each other; see the method by vector."""
        vector = self._store.encoder.encode_queries([query])[0].tolist()
        return self.max_marginal_relevance_search_by_vector(vector, k, fetch_k, lambda_mult, **kwargs)

    def max_marginal_relevance_search_by_vector(
        self, embedding: list[float], k: int = 4, fetch_k: int = 20, lambda_mult: float = 0.5, **kwargs: Any
    ) -> list[Document]:
        """Find what is near to a vector, and differs from each other.

        Parameters
        ----------
        embedding : list of float
        k : int
        fetch_k : int
            How many results to choose from.
        lambda_mult : float
            From 0, as different as possible, to 1, as near as possible.
        **kwargs
            See :meth:`similarity_search_with_score`. What is larger than a chunk is compared by its best chunk.

        Returns
        -------
        list of Document
            In the order in which they were chosen.
        """
        hits, whole = self._hits(embedding, max(k, fetch_k), **kwargs)
        vectors = list(self._store.vectors(hits))
        order = maximal_marginal_relevance(np.asarray(embedding, dtype=np.float32), vectors, lambda_mult, k)
        chosen = scored_documents(self._store, [hits[index] for index in order], whole=whole)
        return [document for document, _ in chosen]

    def _scored(self, query: str | list[float], k: int, **kwargs: Any) -> list[tuple[Document, float]]:
        hits, whole = self._hits(query, k, **kwargs)
        return list(scored_documents(self._store, hits, whole=whole))

    def _hits(
        self,
        query: str | list[float],
        k: int,
        *,
        filter: dict[str, Any] | None = None,
        per: Per | None = None,
        **kwargs: Any,
    ) -> tuple[list[Hit], bool]:
        per = per or self._per
        return self._store.search(query, k, per=per, where=filter, **kwargs), per == "document"

    def close(self) -> None:
        """Let other processes write, and close the database if this store opened it."""
        self._store.close()

    def __enter__(self) -> Self:
        """Return the store."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the store."""
        self.close()


def _documents(texts: Iterable[str], metadatas: list[dict[str, Any]] | None) -> list[Document]:
    # The inherited add_texts does this as well, but reads an iterator twice and then adds nothing, and leaves out
    # texts for which there is no id.
    if isinstance(texts, str):
        raise TypeError("expected several texts, got one str; put it into a list")
    texts = list(texts)
    pairs = zip(texts, metadatas or [{}] * len(texts), strict=True)
    return [Document(text, metadata=metadata or {}) for text, metadata in pairs]


def _memory() -> ClientAPI:
    try:
        import chromadb
    except ImportError as error:
        raise missing_extra("chromadb", "chroma") from error
    return chromadb.EphemeralClient()
