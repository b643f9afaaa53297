"""LlamaIndex's embeddings cache, with keys that tell roles and models apart."""

from __future__ import annotations

from typing import Any

from llama_index.core.storage.kvstore.types import BaseKVStore

COLLECTION = "lmk_embeddings"


class RoleCache(BaseKVStore):
    """A key-value store that only :class:`LMKEmbedding` asks, never LlamaIndex's base class.

    The base class looks a text up by the text alone, so that a query gets the vector of a document and one model
    that of another. It leaves alone a cache that is false, which this one is; everything else passes through.

    Parameters
    ----------
    store : BaseKVStore
        Any store of LlamaIndex; several models may share it.
    """

    def __init__(self, store: BaseKVStore) -> None:
        self.store = store

    def __bool__(self) -> bool:
        """Return False, see the class."""
        return False

    def find(self, key: str) -> list[float] | None:
        """Return the vector under a key, or None."""
        value = self.store.get(key, collection=COLLECTION)
        return None if value is None else value["embedding"]

    def keep(self, key: str, embedding: list[float]) -> None:
        """Store a vector under a key."""
        self.store.put(key, {"embedding": embedding}, collection=COLLECTION)

    # The rest of the interface, for whoever has the store from ``embedding.embeddings_cache``.

    def put(self, key: str, val: dict[str, Any], collection: str = COLLECTION) -> None:
        """See ``BaseKVStore``."""
        self.store.put(key, val, collection=collection)

    async def aput(self, key: str, val: dict[str, Any], collection: str = COLLECTION) -> None:
        """See ``BaseKVStore``."""
        await self.store.aput(key, val, collection=collection)

    def get(self, key: str, collection: str = COLLECTION) -> dict[str, Any] | None:
        """See ``BaseKVStore``."""
        return self.store.get(key, collection=collection)

    async def aget(self, key: str, collection: str = COLLECTION) -> dict[str, Any] | None:
        """See ``BaseKVStore``."""
        return await self.store.aget(key, collection=collection)

    def get_all(self, collection: str = COLLECTION) -> dict[str, dict[str, Any]]:
        """See ``BaseKVStore``."""
        return self.store.get_all(collection=collection)

    async def aget_all(self, collection: str = COLLECTION) -> dict[str, dict[str, Any]]:
        """See ``BaseKVStore``."""
        return await self.store.aget_all(collection=collection)

    def delete(self, key: str, collection: str = COLLECTION) -> bool:
        """See ``BaseKVStore``."""
        return self.store.delete(key, collection=collection)

    async def adelete(self, key: str, collection: str = COLLECTION) -> bool:
        """See ``BaseKVStore``."""
        return await self.store.adelete(key, collection=collection)
