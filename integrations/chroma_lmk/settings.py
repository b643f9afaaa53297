"""Opening a collection: what it remembers about its encoder, and who may use it."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from chroma_lmk.chroma_files import DATABASE
from chroma_lmk.errors import (
    FingerprintMismatchError,
    NotALandmarkCollectionError,
    StoreError,
    StoreNotFoundError,
)
from chroma_lmk.protocols import Encoder
from lmk_embed.errors import ConfigError, missing_extra

if TYPE_CHECKING:
    from chromadb.api import ClientAPI
    from chromadb.api.collection_configuration import CreateCollectionConfiguration
    from chromadb.api.models.Collection import Collection

Space = Literal["cosine", "ip", "l2"]
SPACES: tuple[Space, ...] = ("cosine", "ip", "l2")

DEFAULT_COLLECTION = "lmk"
FORMAT = 1
_FORMAT, _FINGERPRINT, _DIMENSION = "lmk:format", "lmk:fingerprint", "lmk:dimension"
_SPACE, _ENCODER, _VECTORS = "lmk:space", "lmk:encoder", "lmk:document-vectors"
# The collection of the document vectors is named after that of the chunks and says to which it belongs.
_SUFFIX, _OWNER = ".documents", "lmk:documents-of"

_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]{1,510}[a-zA-Z0-9]")

# Chroma saves the index after so many changes. Its default of 1,000 saves a large index very often; what is not
# saved is replayed by each process that opens the database (measured: 5,000 vectors of 384 in under a second).
_SYNC_THRESHOLD = 4_000


@dataclass(frozen=True, slots=True)
class StoreInfo:
    """What a collection remembers.

    Attributes
    ----------
    collection : str
    fingerprint : str
        Of the encoder whose vectors it holds.
    dimension : int
    space : {"cosine", "ip", "l2"}
        Distance Chroma orders by; scores are cosines in all three.
    encoder : dict
        From which the encoder can be built again.
    format : int
        Version of the layout of the rows.
    document_vectors : bool
        Whether the vectors of whole documents are kept, too, in the collection ``vectors_collection``.
    """

    collection: str
    fingerprint: str
    dimension: int
    space: Space
    encoder: dict[str, Any]
    format: int = FORMAT
    document_vectors: bool = False

    @property
    def vectors_collection(self) -> str:
        """Name of the collection of the document vectors."""
        return self.collection + _SUFFIX

    @property
    def language(self) -> str:
        """Language of the sentences in the documents, as far as the encoder says; English unless it does."""
        config = self.encoder.get("config")
        if not isinstance(config, dict) or config.get("boundaries") == "code":  # then it is a programming language
            return "en"
        return str(config.get("language") or "en")

    @classmethod
    def of(cls, encoder: Encoder, collection: str, space: Space, *, document_vectors: bool = False) -> StoreInfo:
        """Describe a new collection for an encoder.

        Raises
        ------
        ConfigError
            If Chroma takes no such name or knows no such space.
        """
        if not _NAME.fullmatch(collection):
            raise ConfigError(
                f"a collection name has 3 to 512 of the characters a-z A-Z 0-9 . _ - and begins and ends with a "
                f"letter or digit, got {collection!r}"
            )
        if space not in SPACES:
            raise ConfigError(f"space must be one of {', '.join(SPACES)}, got {space!r}")
        info = cls(
            collection,
            encoder.fingerprint,
            encoder.dimension,
            space,
            encoder.to_dict(),
            document_vectors=document_vectors,
        )
        if document_vectors and not _NAME.fullmatch(info.vectors_collection):
            raise ConfigError(
                f"with document vectors a collection name has at most {512 - len(_SUFFIX)} characters"
            )
        return info


def connect(client_or_path: ClientAPI | str | Path, *, create: bool) -> tuple[ClientAPI, bool]:
    """Open the database at a path, or take a client as it is.

    Parameters
    ----------
    client_or_path : ClientAPI, str or Path
    create : bool
        Whether to make a new database when there is none at the path.

    Returns
    -------
    client : ClientAPI
    owned : bool
        Whether this call opened it.

    Raises
    ------
    StoreNotFoundError
        If there is no database at the path and ``create`` is false.
    MissingExtraError
        If chromadb is not installed.
    """
    try:
        import chromadb
    except ImportError as error:
        raise missing_extra("chromadb", "chroma") from error
    if isinstance(client_or_path, str | Path):
        path = Path(client_or_path)
        if path.exists() and not path.is_dir():
            raise StoreError(f"{path} is a file; a database is a directory")
        if not create and not (path / DATABASE).exists():
            raise StoreNotFoundError(f"there is no database at {path}; make one with: lmk index … --db {path}")
        try:
            return chromadb.PersistentClient(path=str(client_or_path)), True
        except Exception as error:  # also an AttributeError, at the second attempt on a damaged file
            raise StoreError(f"Chroma cannot open the database at {path}: {error}") from error
    get_collection = getattr(client_or_path, "get_collection", None)
    if inspect.iscoroutine(client_or_path) or inspect.iscoroutinefunction(get_collection):
        if inspect.iscoroutine(client_or_path):
            client_or_path.close()
        raise TypeError(
            "an asynchronous Chroma client cannot be used; pass chromadb.HttpClient(…) with the same settings. "
            "With it, the methods of the store that begin with a (asearch, aadd, …) do not block the event loop"
        )
    if get_collection is None or not hasattr(client_or_path, "get_settings"):
        raise TypeError(f"expected a path or a synchronous Chroma client, got {type(client_or_path).__name__}")
    return client_or_path, False


def find(client: ClientAPI, collection: str) -> tuple[Collection, StoreInfo] | None:
    """Return a collection and what it remembers; None if there is none of that name.

    Raises
    ------
    NotALandmarkCollectionError
        If something else made the collection.
    StoreError
        If a newer version of this package made it.
    """
    from chromadb.errors import NotFoundError

    try:
        # Without an embedding function of its own Chroma would load its default model.
        found = client.get_collection(collection, embedding_function=None)
    except NotFoundError:
        return None
    info = read(collection, found.metadata or {})
    if info is None:
        raise NotALandmarkCollectionError(
            f"collection {collection!r} was not made by LandmarkStore: it does not say which model its vectors "
            "come from. Use another collection name, or delete it first: "
            f"client.delete_collection({collection!r})"
        )
    if info.format > FORMAT:
        raise StoreError(
            f"collection {collection!r} has format {info.format}, this version of chroma_lmk reads up to "
            f"{FORMAT}: upgrade lmk-embed"
        )
    return found, info


def create(client: ClientAPI, info: StoreInfo) -> Collection:
    """Create the collection, or return the one that another client has just created."""
    from chromadb.errors import ChromaError

    if info.document_vectors:  # first, so that no collection ever misses that of its document vectors
        _create_vectors(client, info)
    metadata = {
        _FORMAT: info.format,
        _FINGERPRINT: info.fingerprint,
        _DIMENSION: info.dimension,
        _SPACE: info.space,
        _ENCODER: json.dumps(info.encoder),
        _VECTORS: info.document_vectors,
    }
    try:
        return client.create_collection(
            info.collection,
            metadata=metadata,
            configuration=_configuration(info.space),
            embedding_function=None,
        )
    except ChromaError as error:
        found = find(client, info.collection)
        if found is None:
            raise StoreError(f"Chroma could not make collection {info.collection!r}: {error}") from error
        check(found[1], info.fingerprint)
        if found[1].document_vectors != info.document_vectors:
            raise ConfigError(
                f"collection {info.collection!r} was made by another store a moment ago, "
                f"{'without' if info.document_vectors else 'with'} document vectors; open it again"
            ) from error
        return found[0]


def find_vectors(client: ClientAPI, info: StoreInfo) -> Collection | None:
    """Return the collection of the document vectors; None if there is none.

    Raises
    ------
    NotALandmarkCollectionError
        If something else made the one of that name.
    """
    from chromadb.errors import NotFoundError

    try:
        return _own(client.get_collection(info.vectors_collection, embedding_function=None), info)
    except NotFoundError:
        return None


def _create_vectors(client: ClientAPI, info: StoreInfo) -> None:
    made = client.get_or_create_collection(
        info.vectors_collection,
        metadata={_OWNER: info.collection},
        configuration=_configuration("cosine"),
        embedding_function=None,
    )
    _own(made, info)


def _own(vectors: Collection, info: StoreInfo) -> Collection:
    if (vectors.metadata or {}).get(_OWNER) != info.collection:
        raise NotALandmarkCollectionError(
            f"the document vectors of {info.collection!r} go into a collection {info.vectors_collection!r}, and "
            "something else made one of that name. Use another collection name, or delete it first: "
            f"client.delete_collection({info.vectors_collection!r})"
        )
    return vectors


def _configuration(space: Space) -> CreateCollectionConfiguration:
    return {"hnsw": {"space": space, "sync_threshold": _SYNC_THRESHOLD}}


def check(info: StoreInfo, fingerprint: str) -> None:
    """Refuse an encoder whose vectors cannot be compared with those of the collection."""
    if info.fingerprint != fingerprint:
        raise FingerprintMismatchError(info.collection, info.fingerprint, fingerprint)


def rebuild_encoder(info: StoreInfo, load: Callable[[dict[str, Any]], Encoder] | None) -> Encoder:
    """Build the encoder that a collection remembers, and make sure that it still is the same."""
    if load is None:
        from lmk_embed import LandmarkEncoder

        load = LandmarkEncoder.from_dict
    encoder = load(info.encoder)
    check(info, encoder.fingerprint)
    return encoder


def close(client: ClientAPI) -> None:
    """Close a client that ``connect`` opened."""
    # Part of chromadb's clients since 1.3, but not of the type of its interface.
    getattr(client, "close", lambda: None)()


def read(collection: str, metadata: Any) -> StoreInfo | None:
    """Return what a collection's metadata says; None if no store wrote it."""
    if _FORMAT not in metadata:
        return None
    return StoreInfo(
        collection=collection,
        fingerprint=str(metadata[_FINGERPRINT]),
        dimension=int(metadata[_DIMENSION]),
        space=metadata[_SPACE],
        encoder=json.loads(metadata[_ENCODER]),
        format=int(metadata[_FORMAT]),
        document_vectors=bool(metadata.get(_VECTORS, False)),
    )
