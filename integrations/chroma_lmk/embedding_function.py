"""Chroma's own embedding-function protocol: document vectors for plain ``collection.add`` and ``query``."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from chroma_lmk.errors import FingerprintMismatchError, NotALandmarkCollectionError
from lmk_embed.errors import ConfigError, missing_extra

try:
    from chromadb.api.types import Documents, EmbeddingFunction, Embeddings, Space
    from chromadb.utils.embedding_functions import register_embedding_function
except ImportError as error:
    raise missing_extra("chromadb", "chroma") from error

if TYPE_CHECKING:
    from chromadb.api.models.Collection import Collection

    from lmk_embed import LandmarkEncoder
    from lmk_embed.results import Matrix

_KEYS = frozenset({"encoder", "fingerprint"})


class _Encoders:
    """Loaded encoders by recipe: Chroma builds an embedding function several times for each write."""

    def __init__(self) -> None:
        self._loaded: dict[str, LandmarkEncoder] = {}
        self._lock = threading.Lock()

    def get(self, recipe: dict[str, Any]) -> LandmarkEncoder:
        from lmk_embed import LandmarkEncoder

        key = json.dumps(recipe, sort_keys=True)
        with self._lock:
            if key not in self._loaded:
                self._loaded[key] = LandmarkEncoder.from_dict(recipe)
            return self._loaded[key]

    def put(self, encoder: LandmarkEncoder) -> dict[str, Any]:
        recipe = encoder.to_dict()
        with self._lock:
            self._loaded.setdefault(json.dumps(recipe, sort_keys=True), encoder)
        return recipe


_encoders = _Encoders()


@register_embedding_function
class LMKEmbeddingFunction(EmbeddingFunction[Documents]):
    """One vector a document, for collections that are used through Chroma's own calls.

    Importing ``chroma_lmk`` registers the class, so that any process that does so can open the collection and
    query it by text. Chunk-level retrieval needs several rows a document: see :class:`chroma_lmk.LandmarkStore`.

    The constructor looks for the model, because Chroma itself takes no notice of a function that fails while a
    collection is made: it makes it all the same, without the function and with another space. Weights are
    loaded when Chroma first asks for the configuration or for vectors, and are shared by all embedding functions
    of the process with the same settings.

    Open a collection that exists without an embedding function, ``client.get_collection(name)``: Chroma then
    builds the one that it remembers. A function that is given instead is used as it is, and Chroma compares names
    only; :meth:`check` compares fingerprints.

    Parameters
    ----------
    model : str, optional
        Folder or hub id; the bundled model by default.
    **settings
        What ``LandmarkEncoder.from_pretrained`` takes, as far as JSON can hold it: ``revision``, ``dtype`` and
        the attributes of ``LandmarkConfig``.

    Raises
    ------
    CheckpointError
        If there is no such model.
    ConfigError
        If a setting is unknown or does not fit the model.

    Examples
    --------
    >>> import chromadb
    >>> collection = chromadb.EphemeralClient().create_collection(
    ...     "notes", embedding_function=LMKEmbeddingFunction()
    ... )
    >>> collection.add(ids=["1", "2"], documents=["The pump is too hot.", "The rent is due in May."])
    >>> collection.query(query_texts=["When do I pay rent?"], n_results=1)["ids"]
    [['2']]
    """

    def __init__(self, model: str | None = None, **settings: Any) -> None:
        recipe = {"model": model, "revision": settings.pop("revision", None)}
        recipe |= {"dtype": settings.pop("dtype", "float32"), "config": settings}
        self._remember(recipe, None)
        self._load()

    @classmethod
    def from_encoder(cls, encoder: LandmarkEncoder) -> LMKEmbeddingFunction:
        """Wrap an encoder that is in use already, so that its weights are not loaded twice."""
        recipe = _encoders.put(encoder)
        return cls._of(recipe, None)

    @classmethod
    def _of(cls, recipe: dict[str, Any], fingerprint: str | None) -> LMKEmbeddingFunction:
        function = cls.__new__(cls)
        function._remember(recipe, fingerprint)
        return function

    def _remember(self, recipe: dict[str, Any], fingerprint: str | None) -> None:
        self._load: Callable[[], LandmarkEncoder] = lambda: _encoders.get(recipe)
        self._fingerprint = fingerprint

    @property
    def encoder(self) -> LandmarkEncoder:
        """The encoder behind it, loaded and checked.

        Raises
        ------
        CheckpointError
            If the model is not there any more.
        FingerprintMismatchError
            If it is not the model that the collection was made with.
        """
        encoder = self._load()
        if self._fingerprint not in (None, encoder.fingerprint):
            raise FingerprintMismatchError(
                "of this embedding function", str(self._fingerprint), encoder.fingerprint
            )
        return encoder

    def check(self, collection: Collection) -> None:
        """Make sure that a collection was made with this model and these settings.

        Parameters
        ----------
        collection : chromadb.Collection

        Raises
        ------
        FingerprintMismatchError
            Naming both fingerprints.
        NotALandmarkCollectionError
            If it was made with another embedding function, or none.
        """
        remembered = collection.configuration_json.get("embedding_function") or {}
        if remembered.get("name") != self.name():
            raise NotALandmarkCollectionError(
                f"collection {collection.name!r} was made with the embedding function "
                f"{remembered.get('name') or 'none'}, not with {self.name()!r}; make another collection"
            )
        stored = remembered["config"]["fingerprint"]
        if stored != self.encoder.fingerprint:
            raise FingerprintMismatchError(collection.name, stored, self.encoder.fingerprint)

    def __call__(self, input: Documents) -> Embeddings:
        """Return document vectors, unit length."""
        return [document.vector for document in self.encoder.encode_documents(input)]

    def embed_query(self, input: Documents) -> Embeddings:
        """Return query vectors, unit length."""
        vectors: Matrix = self.encoder.encode_queries(input)
        return list(vectors)

    @staticmethod
    def name() -> str:
        """Return the name under which collections remember it."""
        return "lmk"

    def default_space(self) -> Space:
        """Vectors are compared by cosine unless a collection says otherwise."""
        return "cosine"

    def supported_spaces(self) -> list[Space]:
        """Return all spaces: unit vectors rank alike in each."""
        return ["cosine", "l2", "ip"]

    def get_config(self) -> dict[str, Any]:
        """Return what a collection stores: how to build the encoder, and its fingerprint."""
        encoder = self.encoder
        return {"encoder": encoder.to_dict(), "fingerprint": encoder.fingerprint}

    @staticmethod
    def build_from_config(config: dict[str, Any]) -> LMKEmbeddingFunction:
        """Build the function that a collection remembers; loads nothing."""
        LMKEmbeddingFunction.validate_config(config)
        return LMKEmbeddingFunction._of(config["encoder"], config["fingerprint"])

    def validate_config_update(self, old_config: dict[str, Any], new_config: dict[str, Any]) -> None:
        """Refuse to give a collection another model than its vectors come from."""
        if old_config["fingerprint"] != new_config["fingerprint"]:
            raise FingerprintMismatchError(
                "that is to be modified", old_config["fingerprint"], new_config["fingerprint"]
            )

    @staticmethod
    def validate_config(config: dict[str, Any]) -> None:
        """Check that a configuration was written by :meth:`get_config`."""
        if set(config) != _KEYS:
            raise ConfigError(f"expected a configuration with {sorted(_KEYS)}, got {sorted(config)}")
