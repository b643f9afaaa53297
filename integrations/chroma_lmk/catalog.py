"""What a database holds, and making room in it: all that needs no encoder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from chroma_lmk.access import access_for
from chroma_lmk.errors import StoreNotFoundError
from chroma_lmk.reader import Reader
from chroma_lmk.rows import COMPLETE
from chroma_lmk.settings import DEFAULT_COLLECTION, StoreInfo, close, connect, find, find_vectors, read

if TYPE_CHECKING:
    from chromadb.api import ClientAPI


def list_stores(client_or_path: ClientAPI | str | Path) -> list[StoreInfo]:
    """Describe every collection of a database that a store made, without loading a model.

    Parameters
    ----------
    client_or_path : ClientAPI, str or Path

    Returns
    -------
    list of StoreInfo
        Sorted by name.

    Raises
    ------
    StoreNotFoundError
        If there is no database at the path.
    """
    client, owned = connect(client_or_path, create=False)
    try:
        found = (read(each.name, each.metadata or {}) for each in client.list_collections())
        return sorted((info for info in found if info is not None), key=lambda info: info.collection)
    finally:
        if owned:
            close(client)


def drop_store(client_or_path: ClientAPI | str | Path, collection: str = DEFAULT_COLLECTION) -> bool:
    """Delete a collection with all its documents, so that it can be indexed anew.

    Parameters
    ----------
    client_or_path : ClientAPI, str or Path
    collection : str

    Returns
    -------
    bool
        Whether there was one.

    Raises
    ------
    StoreNotFoundError
        If there is no database at the path.
    StoreLockedError
        If another process is writing to the database.
    NotALandmarkCollectionError
        If something else made the collection; it is left alone.
    """
    client, owned = connect(client_or_path, create=False)
    try:
        found = find(client, collection)
        if found is None:
            return False
        # Stopped between the two, the collection is still there to be dropped again.
        vectors = find_vectors(client, found[1]) if found[1].document_vectors else None
        names = [*([vectors.name] if vectors else []), collection]
        access = access_for(client)
        access.acquire()
        try:
            for name in names:
                with access.changing(None):
                    client.delete_collection(name)
        finally:
            access.release()
            access.close()
        return True
    finally:
        if owned:
            close(client)


def not_found(client: ClientAPI, collection: str) -> StoreNotFoundError:
    """Return the error for a collection that is not there, naming those that are."""
    names = [info.collection for info in list_stores(client)]
    others = f"it has {', '.join(map(repr, names))}" if names else "it has no collection of a LandmarkStore"
    return StoreNotFoundError(f"there is no collection {collection!r} in the database; {others}")


def store_counts(client_or_path: ClientAPI | str | Path, collection: str = DEFAULT_COLLECTION) -> tuple[int, int]:
    """Count the complete documents and the rows of a collection, without loading a model.

    Parameters
    ----------
    client_or_path : ClientAPI, str or Path
    collection : str

    Returns
    -------
    documents, chunks : int

    Raises
    ------
    StoreNotFoundError
        If there is no database at the path, or no such collection in it.
    NotALandmarkCollectionError
        If something else made the collection.
    """
    client, owned = connect(client_or_path, create=False)
    try:
        found = find(client, collection)
        if found is None:
            raise not_found(client, collection)
        access = access_for(client)
        try:
            return count_documents(reader := Reader(found[0], access)), reader.count()
        finally:
            access.close()
    finally:
        if owned:
            close(client)


def count_documents(reader: Reader) -> int:
    """Count the complete documents of a collection, one by one."""
    return sum(1 for _ in reader.scan({COMPLETE: True}))
