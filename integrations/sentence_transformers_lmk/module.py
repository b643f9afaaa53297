"""LandmarkTransformer: the one module of a Sentence Transformers model with landmarks."""

from __future__ import annotations

import inspect
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from sentence_transformers.base.modules import InputModule
from torch import Tensor
from torch.nn.functional import normalize

from lmk_embed import LandmarkConfig
from lmk_embed.backends.torch import OFFSET_POSITIONS, TorchBackend
from lmk_embed.batching import token_batches
from lmk_embed.checkpoint import CONFIG_NAME
from lmk_embed.encoder import BATCH_TOKENS
from lmk_embed.errors import ConfigError
from lmk_embed.loading import load_parts
from lmk_embed.planning import Plan, Planner
from lmk_embed.tokens import ContentTokenizer, encodable
from sentence_transformers_lmk.features import RowSlice, pack, unpack


class LandmarkTransformer(InputModule):
    """Reads whole documents and gives the same vectors as ``LandmarkEncoder``; the only module that is needed.

    A document longer than a row is read in overlapping windows inside the forward pass, so nothing is cut (unless
    the checkpoint says ``overflow="truncate"``, which warns). Vectors have unit length. Texts are documents,
    except in ``encode_query`` (``task="query"``). The prompt is the one Sentence Transformers passes; its tokens
    are in every row and never in a chunk.

    Parameters
    ----------
    model : transformers.PreTrainedModel
    tokenizer : transformers.PreTrainedTokenizerBase
        With a fast backend.
    config : LandmarkConfig
    max_positions : int
        Most tokens of a row that the model can read.

    Attributes
    ----------
    granularities : tuple of int
        In training mode the granularity of each text is drawn from these, by the text itself, so that every
        process and every resumed run draws the same; empty, and in evaluation mode: that of ``config``.

    Examples
    --------
    >>> from sentence_transformers import SentenceTransformer
    >>> model = SentenceTransformer(modules=[LandmarkTransformer.from_pretrained()], device="cpu")
    >>> model.encode_document(["The deposit is three months of rent."]).shape
    (1, 384)
    """

    def __init__(self, model: Any, tokenizer: Any, config: LandmarkConfig, max_positions: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.model = model
        self.tokenizer: Any = tokenizer
        self._content = ContentTokenizer(tokenizer, config.landmark_token)
        self._max_positions = max_positions
        self._planners: dict[tuple[str, int | None, int | None], Planner] = {}
        self.config = Planner(self._content, config, max_positions).config
        self.granularities: tuple[int, ...] = ()

    @classmethod
    def from_pretrained(
        cls,
        model: str | Path | None = None,
        *,
        revision: str | None = None,
        dtype: str = "float32",
        attn_implementation: str | None = None,
        trust_remote_code: bool = False,
        **settings: Any,
    ) -> Self:
        """Load a checkpoint; parameters and errors are those of ``LandmarkEncoder.from_pretrained``."""
        from transformers import AutoTokenizer

        parts = load_parts(
            model,
            settings,
            revision=revision,
            device="cpu",  # SentenceTransformer moves it
            dtype=dtype,
            attn_implementation=attn_implementation,
            trust_remote_code=trust_remote_code,
        )
        backend = parts.backend
        assert isinstance(backend, TorchBackend)
        tokenizer = AutoTokenizer.from_pretrained(backend.folder, trust_remote_code=trust_remote_code)
        return cls(backend.model(), tokenizer, parts.config, parts.max_positions)

    @classmethod
    def load(  # type: ignore[override]  # the base class takes what a subclass names from its kwargs
        cls,
        model_name_or_path: str,
        *,
        revision: str | None = None,
        trust_remote_code: bool = False,
        model_kwargs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> Self:
        """Load a folder or hub repository for ``SentenceTransformer(…, trust_remote_code=True)``.

        The flag allows this class, and code that the repository brings for its model. Of ``model_kwargs``,
        ``dtype`` and ``attn_implementation`` are known.
        """
        options = dict(model_kwargs or {})
        dtype = options.pop("dtype", options.pop("torch_dtype", "float32"))
        attention = options.pop("attn_implementation", None)
        if options:
            raise ConfigError(f"model_kwargs {sorted(options)} are not known here; dtype, attn_implementation are")
        return cls.from_pretrained(
            model_name_or_path,
            revision=revision,
            dtype=str(dtype).removeprefix("torch."),
            attn_implementation=attention,
            trust_remote_code=trust_remote_code,
        )

    def save(self, output_path: str, *args: Any, safe_serialization: bool = True, **kwargs: Any) -> None:
        """Write weights, tokenizer and ``lmk_config.json``; ``LandmarkEncoder`` reads the folder, too."""
        if not safe_serialization:
            raise ConfigError("weights are written as safetensors only; pickled ones can run code when loaded")
        self.model.save_pretrained(output_path)
        self.tokenizer.save_pretrained(output_path)
        (Path(output_path) / CONFIG_NAME).write_text(self.config.to_json(), encoding="utf-8")

    def get_config_dict(self) -> dict[str, Any]:
        """Return the settings, for the printed form of the model."""
        return self.config.to_dict()

    def get_embedding_dimension(self) -> int:
        """Return the length of a vector."""
        return self.config.truncate_dim or int(self.model.config.hidden_size)

    @property
    def max_seq_length(self) -> int:
        """Most tokens of a row; longer documents are read in windows of it."""
        assert self.config.max_seq_length is not None  # the planner resolved it
        return self.config.max_seq_length

    @max_seq_length.setter
    def max_seq_length(self, value: int) -> None:
        config = self.config.override(max_seq_length=value, overlap=None)
        self.config = Planner(self._content, config, self._max_positions).config
        self._planners.clear()

    def preprocess(
        self,
        inputs: Sequence[Any],
        prompt: str | None = None,
        *,
        task: str | None = None,
        max_length: int | None = None,
        **kwargs: Any,
    ) -> dict[str, Tensor | Any]:
        """Cut texts into chunks and lay them out with their landmarks.

        Parameters
        ----------
        inputs : sequence of str
        prompt : str, optional
            None, as everywhere in Sentence Transformers, is no prompt; ``encode_query`` and ``encode_document``
            pass the saved ones.
        task : str, optional
            "query" for queries; anything else is a document.
        max_length : int, optional
            Shorter rows than :attr:`max_seq_length`, for training.

        Returns
        -------
        dict of Tensor
            See :func:`sentence_transformers_lmk.features.pack`.

        Raises
        ------
        TypeError
            If an input is not a string.
        """
        varied = self.granularities if self.training else ()
        if varied:
            plans = [
                plan
                for text in inputs
                for plan in self._plans(
                    [text], self._planner(prompt or "", max_length, varied[_drawn(text, len(varied))]), task
                )
            ]
        else:
            plans = self._plans(inputs, self._planner(prompt or "", max_length, None), task)
        return pack(plans, self._content.pad_id)

    @staticmethod
    def _plans(inputs: Sequence[Any], planner: Planner, task: str | None) -> list[Plan]:
        return list(planner.queries(inputs) if task == "query" else planner.documents(inputs, None))

    def _planner(self, prompt: str, max_length: int | None, granularity: int | None) -> Planner:
        key = (prompt, max_length, granularity)
        if key not in self._planners:
            changes: dict[str, Any] = {} if max_length is None else {"max_seq_length": max_length, "overlap": None}
            if granularity is not None:
                changes["granularity"] = granularity
            config = self.config.override(query_prompt=prompt, document_prompt=prompt, **changes)
            self._planners[key] = Planner(self._content, config, self._max_positions)
        return self._planners[key]

    def forward(self, features: dict[str, Tensor | Any], **kwargs: Any) -> dict[str, Tensor | Any]:
        """Run the model; gradients flow through the pooling.

        Returns
        -------
        dict of Tensor
            The features, and ``sentence_embedding``, shape (texts, D), unit length; ``chunk_embeddings``, shape
            (chunks in context, D), not of unit length, with their neighbours, text by text in document order;
            ``chunk_counts``, shape (texts,).
        """
        rows = unpack(features)
        vectors: list[Tensor] = []
        order: list[int] = []
        for batch in token_batches([len(row) for row in rows], BATCH_TOKENS):
            chosen = [rows[index] for index in batch]
            vectors.append(_segment_means(self._states(features["input_ids"], chosen), chosen))
            order += batch
        pooled = torch.cat(vectors)[:, : self.config.truncate_dim]
        # Rows went through the model by length; from here on they stand in the order of the texts.
        starts = np.cumsum([0, *(len(rows[index].segments) for index in order)])
        places = np.concatenate([np.arange(starts[at], starts[at + 1]) for at in np.argsort(order)])
        pooled = pooled[torch.from_numpy(places).to(pooled.device)]
        owners = [(row.text, alone) for row in rows for _, _, alone in row.segments]
        in_context = torch.tensor([not alone for _, alone in owners], device=pooled.device)
        texts = torch.tensor([text for text, _ in owners], device=pooled.device)
        n_texts = len(features["input_ids"])
        counts = torch.bincount(texts[in_context], minlength=n_texts)
        weight = self.config.neighbour_weight
        return {
            **features,
            "sentence_embedding": _documents(pooled, owners, counts, weight),
            "chunk_embeddings": _with_neighbours(pooled[in_context], texts[in_context], weight),
            "chunk_counts": counts,
        }

    def _states(self, lines: Tensor, rows: Sequence[RowSlice]) -> Tensor:
        """Run the model over rows, padded on the right; the mask comes from their lengths."""
        width = max(map(len, rows))
        ids = lines.new_full((len(rows), width), self._content.pad_id)
        mask = torch.zeros_like(ids)
        for index, row in enumerate(rows):
            ids[index, : len(row)] = lines[row.text, row.start : row.end]
            mask[index, : len(row)] = 1
        extra: dict[str, Any] = {}
        if self.model.config.model_type in OFFSET_POSITIONS:  # see TorchBackend: pad may be a landmark
            first = int(self.model.config.pad_token_id) + 1
            extra["position_ids"] = torch.arange(first, first + width, device=ids.device).expand_as(ids)
        if "use_cache" in inspect.signature(self.model.forward).parameters:
            extra["use_cache"] = False
        states: Tensor = self.model(input_ids=ids, attention_mask=mask, **extra).last_hidden_state
        return states


def _drawn(text: str, n: int) -> int:
    """Draw a number below n by the text alone, the same in every process."""
    return zlib.crc32(encodable(text).encode()) % n


def _segment_means(states: Tensor, rows: Sequence[RowSlice]) -> Tensor:
    """Return the mean state of each segment, shape (segments, D) float32."""
    bounds = [(index, first, last) for index, row in enumerate(rows) for first, last, _ in row.segments]
    places = [index * states.shape[1] + at for index, first, last in bounds for at in range(first, last)]
    owner = [number for number, (_, first, last) in enumerate(bounds) for _ in range(first, last)]
    picked = states.reshape(-1, states.shape[-1])[torch.tensor(places, device=states.device)].float()
    return _means(picked, torch.tensor(owner, device=states.device), len(bounds))


def _with_neighbours(states: Tensor, texts: Tensor, weight: float) -> Tensor:
    """Add to each state a part of those before and behind it in the same text; see ``results.with_neighbours``."""
    if not weight or len(states) < 2:
        return states
    shared = weight * (texts[1:] == texts[:-1]).to(states.dtype)[:, None]
    none = torch.zeros_like(states[:1])
    return states + torch.cat([none, shared * states[:-1]]) + torch.cat([shared * states[1:], none])


def _documents(pooled: Tensor, owners: Sequence[tuple[int, int]], counts: Tensor, weight: float) -> Tensor:
    """Return the unit mean of each text's chunk states, after adding the chunks alone where there are any.

    Parameters
    ----------
    pooled : Tensor, shape (segments, D)
    owners : sequence of (int, int)
        For each segment its text, and 1 for a chunk alone.
    counts : Tensor of int, shape (texts,)
        Chunks of each text.
    weight : float
        Of the neighbours of a chunk.
    """
    n_texts = len(counts)
    texts = torch.tensor([text for text, _ in owners], device=pooled.device)
    alone = torch.tensor([alone for _, alone in owners], device=pooled.device)
    # Where chunks were read twice, both vectors count the same; elsewhere long states count more than short ones.
    blended = torch.zeros(n_texts, dtype=torch.bool, device=pooled.device)
    blended[texts[alone == 1]] = True
    states = torch.where(blended[texts][:, None], normalize(pooled, dim=-1), pooled)
    if weight:
        # A chunk's state is in the mean once for itself and once, in part, for each neighbour.
        place = torch.arange(len(texts), device=pooled.device) - torch.searchsorted(texts, texts)
        place, last = place % counts[texts], counts[texts] - 1
        states = states * (1 + weight * ((place > 0).int() + (place < last).int()))[:, None]
    return normalize(_means(states, texts, n_texts), dim=-1)


def _means(values: Tensor, groups: Tensor, n_groups: int) -> Tensor:
    """Return the mean of each group of rows, shape (n_groups, D)."""
    totals = values.new_zeros((n_groups, values.shape[-1])).index_add(0, groups, values)
    return totals / torch.bincount(groups, minlength=n_groups).clamp(min=1)[:, None]
