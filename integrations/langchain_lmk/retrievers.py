"""LandmarkRetriever: passages for a chat model, from a LandmarkStore."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import run_in_executor
from pydantic import ConfigDict, Field

from chroma_lmk import DEFAULT_COLLECTION, LandmarkStore
from chroma_lmk.search import DocumentScore, Per
from langchain_lmk.results import scored_documents

if TYPE_CHECKING:
    from chromadb.api import ClientAPI


class LandmarkRetriever(BaseRetriever):
    """Retrieves passages: neighbouring chunks joined, with as much context as a character budget allows.

    Every field but the store can be given to ``invoke`` as well, for that call.

    Parameters
    ----------
    store : LandmarkStore
        That of a ``LandmarkVectorStore`` is its attribute ``store``.
    k : int
        How many Documents to return; fewer only if there are no more.
    per : {"passage", "chunk", "document"}
        What to return; see ``LandmarkStore.search``. Parts of a Document carry their span, see ``span``.
    filter : dict, optional
        Chroma's filter on metadata.
    where_document : dict, optional
        Chroma's filter on the text of a chunk.
    score_threshold : float, optional
        Leave out what has a lower cosine with the query.
    max_chars : int
        Budget of a passage.
    max_tokens : int, optional
        Search coarser spans in place of chunks: neighbouring chunks joined up to so many tokens.
    document_score : {"max", "mean", "document_vector"}
        How Documents are ranked.

    Examples
    --------
    >>> from lmk_embed import Document as StoredDocument
    >>> from langchain_lmk import LandmarkVectorStore
    >>> store = LandmarkVectorStore()
    >>> ids = store.add_texts(["Rent is due on the third working day.", "Pets are allowed."])
    >>> LandmarkRetriever(store=store.store, k=1).invoke("When do I have to pay?")[0].page_content
    'Rent is due on the third working day.'
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    store: LandmarkStore
    k: int = Field(default=4, ge=1)
    per: Per = "passage"
    filter: dict[str, Any] | None = None
    where_document: dict[str, Any] | None = None
    score_threshold: float | None = None
    max_chars: int = Field(default=1_000, ge=1)
    max_tokens: int | None = Field(default=None, ge=1)
    document_score: DocumentScore = "max"

    @classmethod
    def open(
        cls, client_or_path: ClientAPI | str | Path, collection: str = DEFAULT_COLLECTION, **fields: Any
    ) -> Self:
        """Open what ``lmk index`` or a store has made, with the encoder it remembers.

        Parameters
        ----------
        client_or_path : ClientAPI, str or Path
        collection : str
        **fields
            Of the class.

        Returns
        -------
        LandmarkRetriever
        """
        return cls(store=LandmarkStore.open(client_or_path, collection), **fields)

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, **kwargs: Any
    ) -> list[Document]:
        fields = {name: getattr(self, name) for name in _PER_CALL}
        return self._search(query, **(fields | kwargs))

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun, **kwargs: Any
    ) -> list[Document]:
        # The inherited method takes no arguments per call.
        manager = run_manager.get_sync()
        return await run_in_executor(None, self._get_relevant_documents, query, run_manager=manager, **kwargs)

    def _search(
        self,
        query: str,
        *,
        k: int,
        per: Per,
        filter: dict[str, Any] | None,
        score_threshold: float | None,
        **settings: Any,
    ) -> list[Document]:
        hits = self.store.search(query, k, per=per, where=filter, min_score=score_threshold, **settings)
        return [document for document, _ in scored_documents(self.store, hits, whole=per == "document")]


_PER_CALL = tuple(name for name in LandmarkRetriever.__annotations__ if name != "store")
