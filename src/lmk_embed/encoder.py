"""The one public object of the core: texts in, document and chunk vectors out."""

from __future__ import annotations

import asyncio
import hashlib
import warnings
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from lmk_embed.backends import Backend
from lmk_embed.checkpoint import CONFIG_NAME, write_folder
from lmk_embed.config import LandmarkConfig
from lmk_embed.errors import ConfigError
from lmk_embed.loading import load_parts
from lmk_embed.planning import Plan, Planner, Spans
from lmk_embed.results import DocumentEmbedding, Matrix, Vector
from lmk_embed.streaming import stream
from lmk_embed.tokens import ContentTokenizer

#: Padded tokens of a forward pass.
BATCH_TOKENS = 16_384


class LandmarkEncoder:
    """Embeds documents of any length in one pass, with a vector for each chunk in its context.

    Use :meth:`from_pretrained`; the constructor takes parts that are loaded already.

    Parameters
    ----------
    backend : Backend
    tokenizer : ContentTokenizer
    config : LandmarkConfig
        ``granularity``, ``max_seq_length`` and ``overlap`` are resolved against ``max_positions``.
    max_positions : int
        Most tokens of a row that the model can read.
    source : mapping, optional
        What :meth:`from_dict` needs to build this encoder again.
    batch_tokens : int
        Most padded tokens of one forward pass.

    Raises
    ------
    ConfigError
        If settings do not fit the model, with both numbers.

    Examples
    --------
    >>> encoder = LandmarkEncoder.from_pretrained()
    >>> doc = encoder.encode_document("The deposit is three months of rent. It is returned within ten days.")
    >>> doc.vector.shape, len(doc.chunks), doc.truncated
    ((384,), 1, False)
    >>> encoder.encode_queries(["How large is the deposit?"]).shape
    (1, 384)
    """

    def __init__(
        self,
        backend: Backend,
        tokenizer: ContentTokenizer,
        config: LandmarkConfig,
        *,
        max_positions: int,
        source: Mapping[str, Any] | None = None,
        batch_tokens: int = BATCH_TOKENS,
    ) -> None:
        if batch_tokens < 1:
            raise ConfigError(f"batch_tokens must be at least 1, got {batch_tokens}")
        if config.truncate_dim is not None and config.truncate_dim > backend.dimension:
            raise ConfigError(
                f"truncate_dim={config.truncate_dim} is more than the model's {backend.dimension} dimensions"
            )
        self._backend = backend
        self._planner = Planner(tokenizer, config, max_positions)
        self._source = dict(source or {})
        self._batch_tokens = batch_tokens
        if config.pooling == "landmark" and not config.landmark_trained:
            warnings.warn(
                'pooling="landmark" on a model that was not trained with landmarks gives poor chunk vectors; '
                'pooling="span_mean", context="blend" suits it, or train it with landmarks',
                stacklevel=3,
            )

    @classmethod
    def from_pretrained(
        cls,
        model: str | Path | None = None,
        *,
        revision: str | None = None,
        device: str | None = None,
        dtype: str = "float32",
        attn_implementation: str | None = None,
        trust_remote_code: bool = False,
        batch_tokens: int = BATCH_TOKENS,
        **settings: Any,
    ) -> LandmarkEncoder:
        """Load a checkpoint; weights are read at the first use.

        Parameters
        ----------
        model : str or Path, optional
            A folder, a hub id, or nothing for the bundled default, which needs no network.
        revision : str, optional
            Branch, tag or commit of a hub repository.
        device : str, optional
            Such as "cuda:1"; by default CUDA, else MPS, else CPU.
        dtype : str
            Such as "bfloat16"; changes vectors slightly.
        attn_implementation : str, optional
            As transformers names them: "sdpa", "eager", "flash_attention_2". By default sliding-window encoders
            (ModernBERT and its kind) on a CPU run their window layers in blocks ("block_window"), all others as
            transformers chooses.
        trust_remote_code : bool
            Run model code that the checkpoint brings. Only for sources you trust.
        batch_tokens : int
            Most padded tokens of one forward pass; sets peak memory, not vectors.
        **settings
            Any attribute of :class:`LandmarkConfig`, over what the checkpoint says.

        Returns
        -------
        LandmarkEncoder

        Raises
        ------
        CheckpointError
            If the model is not there, has no safetensors weights or no usable tokenizer.
        ConfigError
            If a setting is unknown or does not fit the model.
        """
        parts = load_parts(
            model,
            settings,
            revision=revision,
            device=device,
            dtype=dtype,
            attn_implementation=attn_implementation,
            trust_remote_code=trust_remote_code,
        )
        return cls(
            parts.backend,
            parts.tokenizer,
            parts.config,
            max_positions=parts.max_positions,
            source=parts.source,
            batch_tokens=batch_tokens,
        )

    @classmethod
    def from_dict(cls, recipe: Mapping[str, Any]) -> LandmarkEncoder:
        """Build the encoder that :meth:`to_dict` described; never with remote code."""
        settings = dict(recipe)
        return cls.from_pretrained(settings.pop("model", None), **settings.pop("config", {}), **settings)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able recipe for building this encoder again: model, revision, dtype and all settings.

        Raises
        ------
        ConfigError
            If the encoder was put together from parts, so that there is no model to name.
        """
        if not self._source:
            raise ConfigError(
                "this encoder was built from parts, not from a checkpoint; save it with save_pretrained and load "
                "it from there"
            )
        return {**self._source, "config": self.config.to_dict()}

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle and copy the recipe, not the weights; they are read again at the first use."""
        recipe = {**self.to_dict(), "batch_tokens": self._batch_tokens}
        return type(self).from_dict, (recipe,)

    def __repr__(self) -> str:
        """Name the model and the settings that differ from the defaults."""
        defaults = LandmarkConfig().to_dict()
        changed = {name: value for name, value in self.config.to_dict().items() if value != defaults[name]}
        settings = ", ".join(f"{name}={value!r}" for name, value in changed.items())
        return f"{type(self).__name__}({self._source.get('model') or 'bundled default'!s}, {settings})"

    @property
    def config(self) -> LandmarkConfig:
        """All settings, with the model's own limits filled in."""
        return self._planner.config

    @property
    def dimension(self) -> int:
        """Length of every vector; known without loading weights."""
        return self.config.truncate_dim or self._backend.dimension

    @property
    def max_seq_length(self) -> int:
        """Most tokens of a row, special tokens and prompt included."""
        assert self.config.max_seq_length is not None  # the planner resolved it
        return self.config.max_seq_length

    @cached_property
    def _executor(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(max_workers=1, thread_name_prefix="lmk-embed")

    @cached_property
    def fingerprint(self) -> str:
        """Hex digest of the weights and of everything else that changes vectors; independent of folders."""
        parts = (
            self.config.fingerprint(),
            hashlib.sha256(self._planner.tokenizer.serialized.encode()).hexdigest(),
            str(self._planner.tokenizer.landmark_id),
            self._backend.weights_digest(),
        )
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    def encode_document(self, text: str, *, spans: Spans | None = None) -> DocumentEmbedding:
        """Embed one document.

        Parameters
        ----------
        text : str
            Never stripped or rewritten; spans of the result index into it.
        spans : sequence of (int, int), optional
            Character ranges that are to be the chunks, instead of ``boundaries``; text outside of them is not
            read. A range longer than a row is read in parts, and its state is their mean.

        Returns
        -------
        DocumentEmbedding

        Raises
        ------
        TypeError
            If ``text`` is not a string.
        SpanError
            If a span is out of range, out of order, overlapping or blank.
        TokenLimitError
            With ``overflow="error"``, if the text is longer than a row.
        """
        if not isinstance(text, str):
            raise TypeError(f"text must be a string, got {type(text).__name__}")
        (document,) = self.encode_documents([text], spans=None if spans is None else [spans])
        return document

    def encode_documents(
        self, texts: Iterable[str], *, spans: Iterable[Spans] | None = None, show_progress: bool = False
    ) -> Iterator[DocumentEmbedding]:
        """Embed documents as they come, in bounded memory.

        Parameters
        ----------
        texts : iterable of str
            Read lazily, a few batches ahead of the results.
        spans : iterable of span lists, optional
            One list for each text; see :meth:`encode_document`.
        show_progress : bool
            Show a progress bar on standard error.

        Yields
        ------
        DocumentEmbedding
            In input order.

        Raises
        ------
        TypeError
            If ``texts`` is a single string, or an item is not a string (its index is named).
        SpanError, TokenLimitError
            As for :meth:`encode_document`; documents before the failing one have been yielded.
        """
        _check_texts(texts)
        return self._flat(texts, spans, show_progress=show_progress)

    def _flat(
        self, texts: Iterable[str], spans: Iterable[Spans] | None, *, show_progress: bool
    ) -> Iterator[DocumentEmbedding]:
        from tqdm import tqdm

        total = len(texts) if isinstance(texts, Sequence) else None
        with tqdm(total=total, unit="doc", disable=not show_progress) as bar:
            for finished in self._stream(self._planner.documents(texts, spans)):
                for document in finished:
                    bar.update()
                    yield document

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Return where the chunks of a document are, without running the model.

        Parameters
        ----------
        text : str

        Returns
        -------
        list of (int, int)
            Those of the chunks that :meth:`encode_document` gives for the text.

        Raises
        ------
        TypeError, TokenLimitError
            As for :meth:`encode_document`.
        """
        if not isinstance(text, str):
            raise TypeError(f"text must be a string, got {type(text).__name__}")
        (plan,) = self._planner.documents([text], None)
        return [(piece.start, piece.end) for piece in plan.pieces]

    def encode_queries(self, texts: Sequence[str]) -> Matrix:
        """Embed queries.

        Parameters
        ----------
        texts : sequence of str

        Returns
        -------
        ndarray of float32, shape (n, D)
            Unit length, in input order.

        Raises
        ------
        TypeError
            If ``texts`` is a single string, or an item is not a string (its index is named).
        """
        _check_texts(texts)
        vectors = [query.vector for done in self._stream(self._planner.queries(texts)) for query in done]
        return self._stacked(vectors)

    def _stacked(self, vectors: list[Vector]) -> Matrix:
        return np.stack(vectors) if vectors else np.empty((0, self.dimension), dtype=np.float32)

    def encode_query(self, text: str) -> Vector:
        """Embed one query; returns shape (D,) float32, unit length."""
        return np.asarray(self.encode_queries([text])[0])

    async def aencode_documents(
        self, texts: Iterable[str], *, spans: Iterable[Spans] | None = None
    ) -> AsyncIterator[DocumentEmbedding]:
        """Embed documents without blocking the event loop; cancelling stops before the next forward pass."""
        _check_texts(texts)
        async for document in self._in_background(self._stream(self._planner.documents(texts, spans))):
            yield document

    async def aencode_queries(self, texts: Sequence[str]) -> Matrix:
        """Embed queries without blocking the event loop; see :meth:`encode_queries`."""
        _check_texts(texts)
        steps = self._stream(self._planner.queries(texts))
        return self._stacked([query.vector async for query in self._in_background(steps)])

    def _stream(self, plans: Iterable[Plan]) -> Iterator[list[DocumentEmbedding]]:
        config = self.config
        return stream(plans, self._backend, self._batch_tokens, config.truncate_dim, config.neighbour_weight)

    async def _in_background(self, steps: Iterator[list[DocumentEmbedding]]) -> AsyncIterator[DocumentEmbedding]:
        """Take one step at a time on the encoder's own thread, so that no other work of the loop waits for it."""
        loop = asyncio.get_running_loop()
        while (done := await loop.run_in_executor(self._executor, next, steps, None)) is not None:
            for document in done:
                yield document

    def save_pretrained(self, folder: str | Path) -> None:
        """Write weights, tokenizer and ``lmk_config.json``; completely or not at all.

        Parameters
        ----------
        folder : str or Path
            Created, or replaced if it is a checkpoint.

        Raises
        ------
        CheckpointError
            If the folder exists and holds something else.
        """

        def write(target: Path) -> None:
            self._backend.save(target)
            self._planner.tokenizer.save(target)
            (target / CONFIG_NAME).write_text(self.config.to_json(), encoding="utf-8")

        write_folder(Path(folder).expanduser().absolute(), write)


def _check_texts(texts: Iterable[str]) -> None:
    """Refuse what is not a collection of strings before any work; streams are checked as they are read."""
    if isinstance(texts, str | bytes):
        raise TypeError(f"expected several texts, got one {type(texts).__name__}; put it into a list")
    for index, text in enumerate(texts if isinstance(texts, Sequence) else ()):
        if not isinstance(text, str):
            raise TypeError(f"text {index} must be a string, got {type(text).__name__}")
