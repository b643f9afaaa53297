"""A checkpoint and the caller's settings, put together into the parts of an encoder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from lmk_embed.backends import Backend
from lmk_embed.checkpoint import Checkpoint, default_row_length, locate, position_limit
from lmk_embed.config import LandmarkConfig, RowPooling
from lmk_embed.errors import CheckpointError
from lmk_embed.tokens import ContentTokenizer


@dataclass(frozen=True, slots=True)
class Parts:
    """What an encoder is made of."""

    backend: Backend
    tokenizer: ContentTokenizer
    config: LandmarkConfig
    max_positions: int
    source: dict[str, Any]


def load_parts(
    model: str | Path | None,
    settings: Mapping[str, Any],
    *,
    revision: str | None,
    device: str | None,
    dtype: str,
    attn_implementation: str | None,
    trust_remote_code: bool,
) -> Parts:
    """Read configuration and tokenizer; weights stay on disk until the backend needs them.

    Parameters are those of :meth:`lmk_embed.LandmarkEncoder.from_pretrained`.
    """
    from lmk_embed.backends.torch import OFFSET_POSITIONS, TorchBackend

    asked = LandmarkConfig().override(**settings)  # wrong settings are refused before anything is read
    checkpoint = locate(model, revision=revision, trust_remote_code=trust_remote_code)
    model_config, tokenizer = _read(checkpoint.folder, trust_remote_code=trust_remote_code)
    offset = model_config.model_type in OFFSET_POSITIONS
    limit = position_limit(model_config, tokenizer, offset=offset)
    config = _combine(checkpoint, settings, limit, model_config)
    content = ContentTokenizer(tokenizer, asked.landmark_token or config.landmark_token)
    backend = TorchBackend(
        checkpoint.folder,
        model_config,
        content.pad_id,
        device=device,
        dtype=dtype,
        attn_implementation=attn_implementation,
        trust_remote_code=trust_remote_code,
    )
    local = model is not None and Path(model).expanduser().is_dir()
    source = {
        "model": str(checkpoint.folder) if local else model,
        "revision": revision,
        "dtype": dtype,
    }
    return Parts(backend, content, config, limit, source)


def _read(folder: Path, *, trust_remote_code: bool) -> tuple[Any, Any]:
    from transformers import AutoConfig, AutoTokenizer

    try:
        model_config = AutoConfig.from_pretrained(folder, trust_remote_code=trust_remote_code)
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=trust_remote_code)
    except (OSError, ValueError, KeyError, ImportError) as error:
        raise CheckpointError(f"configuration or tokenizer in {folder} cannot be read: {error}") from error
    if getattr(model_config, "is_encoder_decoder", False):
        raise CheckpointError(
            f"{folder} is an encoder-decoder ({model_config.model_type}); save its encoder alone and use that"
        )
    return model_config, tokenizer


def _combine(checkpoint: Checkpoint, settings: Mapping[str, Any], limit: int, model_config: Any) -> LandmarkConfig:
    """Lay the caller's settings over the checkpoint's, and those over what suits the architecture."""
    stated = dict(checkpoint.settings)
    if not checkpoint.declared and "base_pooling" not in stated:
        generative = any("CausalLM" in name for name in getattr(model_config, "architectures", None) or [])
        stated["base_pooling"] = "lasttoken" if generative else "mean"
    stated["max_seq_length"] = min(stated.get("max_seq_length") or default_row_length(limit), limit)
    if settings.get("max_seq_length") not in (None, stated["max_seq_length"]):
        stated.pop("overlap", None)  # it goes with the length of the rows
    asked = settings.get("pooling")
    if asked in get_args(RowPooling) and asked != stated.get("pooling"):
        # The checkpoint's granularity, context and neighbours are about chunks that share a row.
        stated |= {"granularity": None, "context": "window", "neighbour_weight": 0.0}
    return LandmarkConfig.from_dict(stated | dict(settings))
