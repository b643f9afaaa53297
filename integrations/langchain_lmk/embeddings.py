"""LMKEmbeddings: a landmark encoder as LangChain's ``Embeddings``."""

from __future__ import annotations

import difflib
import json
import threading
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Self
from weakref import WeakValueDictionary

from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.runnables import run_in_executor
from pydantic import AliasChoices, BaseModel, ConfigDict, Field, PrivateAttr, model_validator

from langchain_lmk.keys import document_key
from lmk_embed import LandmarkConfig, LandmarkEncoder
from lmk_embed.config import Boundaries, Context, Overflow, Pooling, RowPooling
from lmk_embed.encoder import BATCH_TOKENS
from lmk_embed.errors import ConfigError

_SETTINGS = tuple(field.name for field in fields(LandmarkConfig))
_LOADING = (
    "model",
    "revision",
    "device",
    "dtype",
    "attn_implementation",
    "trust_remote_code",
    "batch_tokens",
)

# Encoders that are in use, so that objects with the same settings share weights and their one forward pass at a
# time. Weak, so that weights are freed with the last of them.
_encoders: WeakValueDictionary[str, LandmarkEncoder] = WeakValueDictionary()
_encoders_lock = threading.Lock()


class LMKEmbeddings(BaseModel, Embeddings):
    """Embeddings for any LangChain vector store: whole documents, of any length, and queries.

    A document of many chunks becomes one vector here. To search in its chunks, use ``LandmarkVectorStore``, or
    cut it with ``LandmarkTextSplitter`` first. Nothing is loaded before the first use.

    For Chroma, hand it to ``langchain_chroma.Chroma(embedding_function=...)``. chromadb's own bridge,
    ``create_langchain_embedding``, is not supported: its queries fail, with any LangChain embeddings.

    For ``CacheBackedEmbeddings``, pass ``namespace=embeddings.fingerprint``, so that a changed model is noticed,
    and a ``query_embedding_cache`` of its own or none: with ``True``, a query gets the vector of the same text as
    a document.

    Parameters
    ----------
    model : str or Path, optional
        A folder, a hub id, or nothing for the bundled default, which needs no network. ``model_name`` is the same.
    revision, device, dtype, attn_implementation, trust_remote_code, batch_tokens
        As for ``LandmarkEncoder.from_pretrained``.
    pooling, boundaries, granularity, ...
        Every attribute of ``LandmarkConfig``. None, the default: what the checkpoint says. That includes the
        prompts; ``""`` switches one off.
    show_progress : bool
        Show a progress bar while documents are embedded.

    Raises
    ------
    pydantic.ValidationError
        If a name is unknown (the nearest known one is suggested) or a value is impossible. It is a ValueError.

    Examples
    --------
    >>> embeddings = LMKEmbeddings(granularity=128)
    >>> len(embeddings.embed_query("How large is the deposit?"))
    384
    """

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())

    model: str | Path | None = Field(default=None, validation_alias=AliasChoices("model", "model_name"))
    revision: str | None = None
    device: str | None = None
    dtype: str = "float32"
    attn_implementation: str | None = None
    trust_remote_code: bool = False
    batch_tokens: int = Field(default=BATCH_TOKENS, ge=1)

    pooling: Pooling | None = None
    boundaries: Boundaries | None = None
    granularity: int | None = None
    language: str | None = None
    context: Context | None = None
    overflow: Overflow | None = None
    max_seq_length: int | None = None
    overlap: int | None = None
    truncate_dim: int | None = None
    query_prompt: str | None = None
    document_prompt: str | None = None
    include_prompt: bool | None = None
    base_pooling: RowPooling | None = None
    neighbour_weight: float | None = None
    landmark_token: str | None = None
    landmark_trained: bool | None = None

    show_progress: bool = False

    _encoder: LandmarkEncoder | None = PrivateAttr(default=None)
    _given: bool = PrivateAttr(default=False)
    _recipe: dict[str, Any] | None = PrivateAttr(default=None)

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown_names(cls, given: Any) -> Any:
        known = [*cls.model_fields, "model_name"]
        for name in given if isinstance(given, Mapping) else ():
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"known settings: {', '.join(known)}"
                raise ValueError(f"unknown setting {name!r}; {hint}")
        return given

    @model_validator(mode="after")
    def _check_values(self) -> Self:
        LandmarkConfig().override(**self._stated(_SETTINGS))
        return self

    @classmethod
    def from_encoder(cls, encoder: LandmarkEncoder, *, show_progress: bool = False) -> Self:
        """Wrap an encoder that exists already.

        Parameters
        ----------
        encoder : LandmarkEncoder
        show_progress : bool

        Returns
        -------
        LMKEmbeddings
            With the settings of the encoder in its fields. It can be pickled if the encoder came from a
            checkpoint.
        """
        try:
            recipe = encoder.to_dict()
        except ConfigError:  # put together from parts; good for this process
            recipe = {"config": encoder.config.to_dict()}
        config = recipe.pop("config")
        made = cls(**recipe, **config, show_progress=show_progress)
        made._encoder, made._given = encoder, True
        return made

    @property
    def encoder(self) -> LandmarkEncoder:
        """The encoder behind it, made at the first call; its weights are loaded when they are needed."""
        if self._encoder is None:
            with _encoders_lock:
                self._encoder = self._load() if self._recipe is None else LandmarkEncoder.from_dict(self._recipe)
        return self._encoder

    @property
    def fingerprint(self) -> str:
        """Hex digest of the weights and of everything else that changes vectors; loads the weights."""
        return self.encoder.fingerprint

    def document_key(self, document: Document) -> str:
        """Return a key for LangChain's ``index`` that changes with the model, so that nothing stale is skipped.

        Parameters
        ----------
        document : Document

        Returns
        -------
        str

        Examples
        --------
        >>> from langchain_core.indexing import InMemoryRecordManager, index
        >>> from langchain_core.vectorstores import InMemoryVectorStore
        >>> embeddings = LMKEmbeddings()
        >>> store, records = InMemoryVectorStore(embeddings), InMemoryRecordManager("contracts")
        >>> documents = [Document("Rent is due on the third working day.")]
        >>> index(documents, records, store, cleanup="full", key_encoder=embeddings.document_key)["num_added"]
        1
        """
        return document_key(self.fingerprint, document)

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Embed documents; each gets one vector, whatever its length.

        Parameters
        ----------
        texts : list of str
            Embedded as they are; line breaks are kept.

        Returns
        -------
        list of list of float
            Unit length, in input order.

        Raises
        ------
        TypeError
            If it is a single string, or an item is not a string (its index is named).
        """
        embedded = self.encoder.encode_documents(texts, show_progress=self.show_progress)
        return [document.vector.tolist() for document in embedded]

    def embed_query(self, text: str) -> list[float]:
        """Embed a query, with the query prompt.

        Parameters
        ----------
        text : str

        Returns
        -------
        list of float
            Unit length.
        """
        vector: list[float] = self.encoder.encode_query(text).tolist()
        return vector

    async def aembed_documents(self, texts: list[str]) -> list[list[float]]:
        """Embed documents without blocking the event loop; cancelling stops before the next forward pass."""
        encoder = await self._aencoder()
        return [document.vector.tolist() async for document in encoder.aencode_documents(texts)]

    async def aembed_query(self, text: str) -> list[float]:
        """Embed a query without blocking the event loop."""
        encoder = await self._aencoder()
        vector: list[float] = (await encoder.aencode_queries([text]))[0].tolist()
        return vector

    async def _aencoder(self) -> LandmarkEncoder:
        if self._encoder is not None:
            return self._encoder
        return await run_in_executor(None, lambda: self.encoder)  # reads a tokenizer from disk

    def _load(self) -> LandmarkEncoder:
        options = self._stated((*_LOADING, *_SETTINGS))
        key = json.dumps([options, _files(self.model)], default=str, sort_keys=True)
        encoder = _encoders.get(key)
        if encoder is None:
            encoder = _encoders[key] = LandmarkEncoder.from_pretrained(**options)
        return encoder

    def _stated(self, names: tuple[str, ...]) -> dict[str, Any]:
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return a copy; with other settings it gets an encoder of its own.

        Raises
        ------
        ConfigError
            If there is something to update and it was made from an encoder.
        """
        if not update:
            return self.__copy__()
        if self._given or self._recipe is not None:
            raise ConfigError("these embeddings were made from an encoder; make them anew from another one")
        return type(self)(**{**self.model_dump(), **update})

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        """Return a copy that shares the encoder; nothing else could change."""
        return self.__copy__()

    def __getstate__(self) -> dict[Any, Any]:
        """Leave the encoder out: whoever unpickles makes it again at the first use."""
        recipe = self._recipe
        if self._given and self._encoder is not None:
            recipe = self._encoder.to_dict()
        private = {"_encoder": None, "_given": False, "_recipe": recipe}
        return {**super().__getstate__(), "__pydantic_private__": private}


def _files(model: str | Path | None) -> list[tuple[str, int, int]]:
    """Describe the files of a local model, so that one that was trained further is not taken for the old one."""
    folder = None if model is None else Path(model).expanduser()
    if folder is None or not folder.is_dir():
        return []
    return sorted((file.name, file.stat().st_mtime_ns, file.stat().st_size) for file in folder.iterdir())
