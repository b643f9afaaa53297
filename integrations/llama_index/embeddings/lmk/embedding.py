"""LMKEmbedding: queries and texts for every index and vector store of LlamaIndex."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import Any, Literal, Self

from llama_index.core.base.embeddings.base import BaseEmbedding, Embedding
from llama_index.core.bridge.pydantic import ConfigDict, Field, PrivateAttr, field_validator
from llama_index.core.schema import BaseNode
from llama_index.core.storage.kvstore.types import BaseKVStore

from llama_index.embeddings.lmk.handle import EncoderHandle
from llama_index.embeddings.lmk.in_context import to_embed
from llama_index.embeddings.lmk.role_cache import RoleCache
from lmk_embed import LandmarkConfig, LandmarkEncoder
from lmk_embed.config import Boundaries, Context, Overflow, Pooling, RowPooling
from lmk_embed.encoder import BATCH_TOKENS
from lmk_embed.models import DEFAULT_NAME
from lmk_embed.results import Vector

Role = Literal["query", "text"]

_SETTINGS = tuple(field.name for field in fields(LandmarkConfig))


def _setting() -> Any:
    """Return a field for a setting of the model: what the checkpoint says unless given, and fixed from then on."""
    return Field(default=None, frozen=True)


class LMKEmbedding(BaseEmbedding):
    """Embeds queries and texts of any length; set it as ``Settings.embed_model``.

    A text is read in one pass and gets one vector. For a vector of each chunk in the context of its document, put
    :class:`LMKNodeParser` into the ingestion pipeline and leave the queries to this class: behind the parser in a
    pipeline, it leaves the parser's nodes as they are.

    All settings of :class:`lmk_embed.LandmarkConfig` are fields. Those that are not given are read from the
    checkpoint when the object is made, so that ``to_dict`` names every setting; weights are read at the first use.

    Parameters
    ----------
    model_name : str
        A folder, a hub id, or "default" for the bundled model, which needs no network.
    revision : str, optional
        Branch, tag or commit of a hub repository.
    device, dtype, attn_implementation, trust_remote_code, batch_tokens
        As for :meth:`lmk_embed.LandmarkEncoder.from_pretrained`. ``trust_remote_code`` is never serialised.
    pooling, boundaries, granularity, language, context, overflow, max_seq_length, overlap, truncate_dim, \
query_prompt, document_prompt, include_prompt, base_pooling, neighbour_weight, landmark_token, \
landmark_trained
        As for :class:`lmk_embed.LandmarkConfig`.
    embed_batch_size : int
        Texts that are handed over at once; the encoder divides them by tokens, so memory does not depend on it.
    embeddings_cache : BaseKVStore, optional
        Keeps vectors under the model's fingerprint, the role and the text. Several models may share one.
    num_workers, callback_manager, rate_limiter
        As for every embedding of LlamaIndex.

    Raises
    ------
    pydantic.ValidationError
        If a setting is unknown or impossible, if settings do not fit together or do not fit the model.
    CheckpointError
        If the model is not there.

    Examples
    --------
    >>> from llama_index.core import Settings
    >>> Settings.embed_model = LMKEmbedding(granularity=128)
    >>> len(Settings.embed_model.get_query_embedding("How large is the deposit?"))
    384
    """

    model_config = ConfigDict(extra="forbid", validate_assignment=True)

    model_name: str = Field(default=DEFAULT_NAME, min_length=1, frozen=True)
    revision: str | None = Field(default=None, frozen=True)
    device: str | None = Field(default=None, frozen=True)
    dtype: str = Field(default="float32", frozen=True)
    attn_implementation: str | None = Field(default=None, frozen=True)
    # A dictionary may come from anywhere; running code that a model brings is for the caller to allow.
    trust_remote_code: bool = Field(default=False, frozen=True, exclude=True)
    batch_tokens: int = Field(default=BATCH_TOKENS, ge=1, frozen=True)

    pooling: Pooling = _setting()
    boundaries: Boundaries = _setting()
    granularity: int | None = _setting()
    language: str | None = _setting()
    context: Context = _setting()
    overflow: Overflow = _setting()
    max_seq_length: int | None = _setting()
    overlap: int | None = _setting()
    truncate_dim: int | None = _setting()
    query_prompt: str = _setting()
    document_prompt: str = _setting()
    include_prompt: bool = _setting()
    base_pooling: RowPooling = _setting()
    neighbour_weight: float = _setting()
    landmark_token: str | None = _setting()
    landmark_trained: bool = _setting()

    embed_batch_size: int = Field(default=128, gt=0, le=2048)
    embeddings_cache: Any | None = Field(default=None, exclude=True)

    _handle: EncoderHandle = PrivateAttr()

    @field_validator("embeddings_cache")
    @classmethod
    def _tell_roles_apart(cls, cache: Any) -> Any:
        return RoleCache(cache) if isinstance(cache, BaseKVStore) and not isinstance(cache, RoleCache) else cache

    def model_post_init(self, context: Any, /) -> None:
        """Fill in what the checkpoint says; reads no weights, and no file if every setting is given."""
        super().model_post_init(context)
        given = {name: getattr(self, name) for name in _SETTINGS if name in self.model_fields_set}
        recipe = {
            "model": self.model_name,
            "revision": self.revision,
            "device": self.device,
            "dtype": self.dtype,
            "attn_implementation": self.attn_implementation,
            "trust_remote_code": self.trust_remote_code,
            "batch_tokens": self.batch_tokens,
        }
        self._handle = EncoderHandle(recipe | given)
        if len(given) == len(_SETTINGS):
            LandmarkConfig.from_dict(given)  # what is wrong in itself is refused now, as ever
            return
        resolved = self.encoder.config.to_dict()
        # A folder under its full path: another process may have another working directory.
        resolved["model_name"] = self.encoder.to_dict()["model"] or DEFAULT_NAME
        self.__dict__.update(resolved)  # the fields are frozen for everybody else
        self.model_fields_set.update(resolved)

    @classmethod
    def from_encoder(cls, encoder: LandmarkEncoder, **options: Any) -> Self:
        """Use an encoder that exists already, for example that of a ``LandmarkStore``; weights are shared.

        Parameters
        ----------
        encoder : LandmarkEncoder
            From a checkpoint, so that other processes can load it again.
        **options
            Fields that are not settings of the encoder, such as ``embeddings_cache``.

        Returns
        -------
        LMKEmbedding

        Raises
        ------
        ConfigError
            If the encoder was built from parts.
        """
        recipe = encoder.to_dict()
        model, config = recipe.pop("model"), recipe.pop("config")
        made = cls(model_name=str(model or DEFAULT_NAME), **recipe, **config, **options)
        made._handle = EncoderHandle(made._handle.recipe, encoder)
        return made

    @classmethod
    def class_name(cls) -> str:
        """Return the name that LlamaIndex stores."""
        return "LMKEmbedding"

    @property
    def encoder(self) -> LandmarkEncoder:
        """The encoder behind this object; the same one for all that share the object."""
        return self._handle.encoder()

    async def aencoder(self) -> LandmarkEncoder:
        """Return :attr:`encoder` without blocking the event loop while files are read."""
        return await self._handle.aencoder()

    def to_dict(self, **kwargs: Any) -> dict[str, Any]:
        """Return all settings and the model's fingerprint, as values JSON can hold; no callbacks, no cache.

        With the fingerprint an ingestion cache notices new weights in an old folder. Reads the weights.
        """
        return {**super().to_dict(**kwargs), "fingerprint": self.encoder.fingerprint}

    @classmethod
    def from_dict(cls, data: dict[str, Any], **kwargs: Any) -> Self:
        """Build the embedding that :meth:`to_dict` described, with other values for the fields in ``kwargs``."""
        return super().from_dict({key: value for key, value in data.items() if key != "fingerprint"}, **kwargs)

    def to_payload(self) -> dict[str, Any]:
        """Describe the model to callbacks and tracing."""
        return {
            **super().to_payload(),
            "pooling": self.pooling,
            "boundaries": self.boundaries,
            "granularity": self.granularity,
            "max_seq_length": self.max_seq_length,
        }

    def __call__(self, nodes: Sequence[BaseNode], **kwargs: Any) -> Sequence[BaseNode]:
        """Embed nodes, each alone, except those that :class:`LMKNodeParser` embedded in their documents.

        Those keep their vectors if model and settings are the same; else a warning tells that they are replaced.
        """
        super().__call__(self._to_embed(nodes), **kwargs)
        return nodes

    async def acall(self, nodes: Sequence[BaseNode], **kwargs: Any) -> Sequence[BaseNode]:
        """Embed nodes without blocking the event loop; see :meth:`__call__`."""
        await super().acall(await asyncio.to_thread(self._to_embed, nodes), **kwargs)
        return nodes

    def _to_embed(self, nodes: Sequence[BaseNode]) -> list[BaseNode]:
        return to_embed(nodes, self.encoder.fingerprint)

    def get_text_embedding_batch(
        self, texts: list[str], show_progress: bool = False, **kwargs: Any
    ) -> list[Embedding]:
        """Embed texts; see ``BaseEmbedding``.

        Raises
        ------
        TypeError
            If ``texts`` is a single string, or an item is not a string.
        """
        _check_list(texts)
        embeddings: list[Embedding] = super().get_text_embedding_batch(texts, show_progress, **kwargs)
        return embeddings

    async def aget_text_embedding_batch(
        self, texts: list[str], show_progress: bool = False, **kwargs: Any
    ) -> list[Embedding]:
        """Embed texts without blocking the event loop, one forward pass at a time; see ``BaseEmbedding``."""
        _check_list(texts)
        embeddings: list[Embedding] = await super().aget_text_embedding_batch(texts, show_progress, **kwargs)
        return embeddings

    def _get_query_embedding(self, query: str) -> Embedding:
        return self._embed("query", [query])[0]

    def _get_text_embedding(self, text: str) -> Embedding:
        return self._embed("text", [text])[0]

    def _get_text_embeddings(self, texts: list[str]) -> list[Embedding]:
        return self._embed("text", texts)

    async def _aget_query_embedding(self, query: str) -> Embedding:
        return (await self._aembed("query", [query]))[0]

    async def _aget_text_embedding(self, text: str) -> Embedding:
        return (await self._aembed("text", [text]))[0]

    async def _aget_text_embeddings(self, texts: list[str]) -> list[Embedding]:
        return await self._aembed("text", texts)

    def _embed(self, role: Role, texts: Sequence[str]) -> list[Embedding]:
        cache = self.embeddings_cache
        if cache is None:
            return self._encode(role, texts)
        keys = [f"{self.encoder.fingerprint}/{role}/{text}" for text in texts]
        known = {key: cache.find(key) for key in keys}
        missing = {key: text for key, text in zip(keys, texts, strict=True) if known[key] is None}
        for key, embedding in zip(missing, self._encode(role, list(missing.values())), strict=True):
            cache.keep(key, embedding)
            known[key] = embedding
        return [known[key] for key in keys]

    def _encode(self, role: Role, texts: Sequence[str]) -> list[Embedding]:
        if role == "query":
            return _floats(self.encoder.encode_queries(texts))
        return _floats(document.vector for document in self.encoder.encode_documents(texts))

    async def _aembed(self, role: Role, texts: Sequence[str]) -> list[Embedding]:
        if self.embeddings_cache is not None:
            return await asyncio.to_thread(self._embed, role, texts)
        encoder = await self.aencoder()
        if role == "query":
            return _floats(await encoder.aencode_queries(texts))
        return _floats([document.vector async for document in encoder.aencode_documents(texts)])


def _floats(vectors: Iterable[Vector]) -> list[Embedding]:
    """Return Python floats: callbacks, caches and stores write JSON."""
    return [vector.tolist() for vector in vectors]


def _check_list(texts: object) -> None:
    # The base class would embed the letters of a string.
    if isinstance(texts, str | bytes):
        raise TypeError(f"expected a list of texts, got one {type(texts).__name__}; put it into a list")
