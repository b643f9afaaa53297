"""The store's methods for asyncio: the same names with an ``a`` before them, none of which blocks the loop.

Chroma's embedded database and the encoders are synchronous, so the work is done in threads: reads in those of
``asyncio.to_thread``, writes one after the other in a thread of their own, so that writes that wait for each other
never take the threads that reads need.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, Self, TypeVar

from chroma_lmk.hits import Hit
from chroma_lmk.ingest import AddReport
from chroma_lmk.nearest import Filter
from chroma_lmk.search import DocumentScore, Per
from chroma_lmk.settings import DEFAULT_COLLECTION
from chroma_lmk.transfer import ExportReport
from lmk_embed.results import Document, DocumentEmbedding

if TYPE_CHECKING:
    from chromadb.api import ClientAPI
    from numpy.typing import ArrayLike

P = ParamSpec("P")
T = TypeVar("T")


if TYPE_CHECKING:

    class _Store:
        """What ``LandmarkStore`` has."""

        @classmethod
        def open(cls, *args: Any, **kwargs: Any) -> Self: ...
        def add(self, *args: Any, **kwargs: Any) -> AddReport: ...
        def delete(self, *args: Any, **kwargs: Any) -> int: ...
        def get(self, *args: Any, **kwargs: Any) -> list[Document]: ...
        def count(self, *args: Any, **kwargs: Any) -> int: ...
        def search(self, *args: Any, **kwargs: Any) -> list[Hit]: ...
        def export(self, *args: Any, **kwargs: Any) -> ExportReport: ...
        def import_(self, *args: Any, **kwargs: Any) -> AddReport: ...
        def close(self) -> None: ...

else:
    _Store = object


class _CancelledError(Exception):
    """Ends an ``add`` in its thread when nobody waits for it any more."""


class AsyncMethods(_Store):
    """Part of ``LandmarkStore``; each method does what the one without the ``a`` does.

    A call that is cancelled returns at once. ``aadd`` then stops after the document that is being embedded, and
    what was embedded is stored; another write that has begun runs to its end, one that has not never runs. Either
    way the store is consistent, and the next write waits until it is.
    """

    _writing_thread: ThreadPoolExecutor | None = None

    @classmethod
    async def aopen(
        cls, client_or_path: ClientAPI | str | Path, collection: str = DEFAULT_COLLECTION, **settings: Any
    ) -> Self:
        """Open an existing collection with the encoder it remembers; see ``open``."""
        return await asyncio.to_thread(cls.open, client_or_path, collection, **settings)

    async def aadd(
        self,
        documents: Iterable[Document],
        *,
        skip_unchanged: bool = False,
        on_encoded: Callable[[DocumentEmbedding], object] | None = None,
    ) -> AddReport:
        """Store documents; see ``add``. ``documents`` and ``on_encoded`` are used in another thread."""
        stopped = threading.Event()

        def encoded(embedding: DocumentEmbedding) -> None:
            if on_encoded is not None:
                on_encoded(embedding)
            if stopped.is_set():
                raise _CancelledError

        try:
            return await self._awrite(self.add, documents, skip_unchanged=skip_unchanged, on_encoded=encoded)
        except asyncio.CancelledError:
            stopped.set()
            raise

    async def adelete(self, ids: Iterable[str]) -> int:
        """Delete documents; see ``delete``."""
        return await self._awrite(self.delete, ids)

    async def aget(self, ids: Iterable[str]) -> list[Document]:
        """Give documents back as they were added; see ``get``."""
        return await asyncio.to_thread(self.get, ids)

    async def acount(self, per: Literal["chunk", "document"] = "chunk") -> int:
        """Count what is stored; see ``count``."""
        return await asyncio.to_thread(self.count, per)

    async def asearch(
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
        """Find what answers a query; see ``search``."""
        return await asyncio.to_thread(
            self.search,
            query,
            k,
            per=per,
            where=where,
            where_document=where_document,
            min_score=min_score,
            document_score=document_score,
            max_chars=max_chars,
            max_tokens=max_tokens,
        )

    async def aexport(self, path: str | Path) -> ExportReport:
        """Write all documents to a Parquet file; see ``export``."""
        return await self._awrite(self.export, path)

    async def aimport(self, path: str | Path) -> AddReport:
        """Store all documents of an exported file; see ``import_``."""
        return await self._awrite(self.import_, path)

    async def aclose(self) -> None:
        """Wait for the writes that were begun, then close the store; see ``close``."""
        await self._awrite(self.close)
        if self._writing_thread is not None:
            self._writing_thread.shutdown(wait=False)
            self._writing_thread = None

    async def __aenter__(self) -> Self:
        """Return the store."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the store, also when the task is being cancelled."""
        await asyncio.shield(self.aclose())

    async def _awrite(self, write: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        if self._writing_thread is None:
            self._writing_thread = ThreadPoolExecutor(1, thread_name_prefix="lmk-writer")
        call = partial(copy_context().run, write, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._writing_thread, call)
