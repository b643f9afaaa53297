"""Find, read and write checkpoints: local folders, hub repositories, Sentence Transformers folders."""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from lmk_embed.config import LandmarkConfig
from lmk_embed.errors import CheckpointError
from lmk_embed.models import DEFAULT_NAME, default_checkpoint

CONFIG_NAME = "lmk_config.json"

_HUB_PATTERNS = ["*.json", "*.txt", "*.model", "*.safetensors", "*.jinja", "1_Pooling/*"]
_POOLINGS = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_lasttoken": "lasttoken",
}
#: Longest row by default: attention grows with its square, and windows read longer documents anyway.
_LONGEST_ROW = 8192


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A local model folder and what it says about its use.

    Attributes
    ----------
    folder : Path
    settings : dict
        Values for :class:`LandmarkConfig` that the folder, or the bundle, states.
    declared : bool
        Whether the folder has an ``lmk_config.json``.
    """

    folder: Path
    settings: dict[str, Any]
    declared: bool


def locate(model: str | Path | None, *, revision: str | None, trust_remote_code: bool) -> Checkpoint:
    """Resolve a model name to a local folder with safetensors weights, and read its settings.

    Parameters
    ----------
    model : str, Path or None
        A folder, a hub id, or None for the bundled default.
    revision : str or None
        Branch, tag or commit of a hub repository.
    trust_remote_code : bool
        Also fetch the Python files of a hub repository.

    Returns
    -------
    Checkpoint

    Raises
    ------
    CheckpointError
        If there is no such folder or repository, or it has no safetensors weights.
    """
    if model is None or model == DEFAULT_NAME:
        folder, bundled = default_checkpoint()
    else:
        folder, bundled = _local(model, revision, trust_remote_code=trust_remote_code), {}
    _check_weights(folder)
    declared = (folder / CONFIG_NAME).is_file()
    if declared:
        text = (folder / CONFIG_NAME).read_text(encoding="utf-8")
        return Checkpoint(folder, LandmarkConfig.from_json(text).to_dict(), declared=True)
    return Checkpoint(folder, _sentence_transformers_settings(folder) | bundled, declared=False)


def _local(model: str | Path, revision: str | None, *, trust_remote_code: bool) -> Path:
    if not str(model).strip():
        raise CheckpointError("the model name is empty; give a folder or hub id, or nothing for the bundled one")
    path = Path(model).expanduser()
    if path.is_dir():
        return path.resolve()
    if path.is_file():
        raise CheckpointError(f"{path} is a file; give the folder that holds config.json and the weights")
    name = str(model)
    if isinstance(model, Path) or path.is_absolute() or name.startswith((".", "~")) or name.count("/") > 1:
        raise CheckpointError(f"no model folder at {path}; check the path, or give a hub id such as org/name")
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    patterns = _HUB_PATTERNS + (["*.py"] if trust_remote_code else [])
    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=patterns))
    except (HfHubHTTPError, LocalEntryNotFoundError, HFValidationError, OSError) as error:
        raise CheckpointError(
            f"{model!r} is neither a folder here nor a repository that could be fetched from the hub "
            f"({type(error).__name__}: {str(error).splitlines()[0]}). Offline, give a local folder, or no model "
            "at all for the bundled default."
        ) from error


def _check_weights(folder: Path) -> None:
    if not (folder / "config.json").is_file():
        raise CheckpointError(f"{folder} has no config.json, so it is not a model folder")
    if any(folder.glob("*.safetensors")):
        return
    unsafe = sorted(path.name for pattern in ("*.bin", "*.pt", "*.pth") for path in folder.glob(pattern))
    if unsafe:
        raise CheckpointError(
            f"{folder} has only pickled weights ({', '.join(unsafe[:3])}), which can run code when loaded. "
            "Convert them to safetensors first: AutoModel.from_pretrained(...).save_pretrained(...)"
        )
    raise CheckpointError(f"{folder} has no weights: no *.safetensors file beside config.json")


def _sentence_transformers_settings(folder: Path) -> dict[str, Any]:
    """Read prompts, pooling and length of a Sentence Transformers folder, so that it behaves as published."""
    settings: dict[str, Any] = {"pooling": "span_mean"}
    modules = _read_json(folder / "modules.json", list)
    if not modules:
        return settings
    for module in modules:
        kind = str(module.get("type", "")).rsplit(".", 1)[-1]
        if kind == "Pooling":
            settings |= _pooling_settings(folder / str(module.get("path", "")))
        elif kind not in ("Transformer", "Normalize"):
            warnings.warn(
                f"{folder} has a Sentence Transformers module {kind!r} that lmk-embed does not apply; "
                "vectors will differ from the published ones",
                stacklevel=2,
            )
    limit = _read_json(folder / "sentence_bert_config.json", dict).get("max_seq_length")
    if isinstance(limit, int):
        settings["max_seq_length"] = limit
    return settings | _prompts(folder)


def _pooling_settings(folder: Path) -> dict[str, Any]:
    published = _read_json(folder / "config.json", dict)
    modes = [mode for key, mode in _POOLINGS.items() if published.get(key)]
    modes = modes or ([published["pooling_mode"]] if "pooling_mode" in published else [])
    settings: dict[str, Any] = {"include_prompt": bool(published.get("include_prompt", True))}
    if len(modes) == 1 and modes[0] in _POOLINGS.values():
        return settings | {"base_pooling": modes[0]}
    warnings.warn(
        f"{folder} pools in a way that lmk-embed does not know ({modes or 'none stated'}); using the mean",
        stacklevel=2,
    )
    return settings


def _prompts(folder: Path) -> dict[str, str]:
    """Read saved prompts; roles are found by the names that Sentence Transformers looks for."""
    published = _read_json(folder / "config_sentence_transformers.json", dict)
    prompts: dict[str, str] = published.get("prompts") or {}
    default = prompts.get(published.get("default_prompt_name") or "", "")

    def first(*names: str) -> str:
        return next((prompts[name] for name in names if prompts.get(name)), default)

    return {"query_prompt": first("query"), "document_prompt": first("document", "passage", "corpus")}


def _read_json(path: Path, kind: type) -> Any:
    """Return the JSON value of a file, an empty one of that type where the file is absent."""
    if not path.is_file():
        return kind()
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{path} is not valid JSON: {error}") from error
    if not isinstance(value, kind):
        raise CheckpointError(f"{path} should hold a JSON {kind.__name__}, it holds a {type(value).__name__}")
    return value


def position_limit(model_config: Any, tokenizer: Any, *, offset: bool) -> int:
    """Return the most tokens of a row that the model can read.

    Parameters
    ----------
    model_config : transformers.PretrainedConfig
    tokenizer : transformers.PreTrainedTokenizerBase
    offset : bool
        Whether positions start behind the padding index, so that some of the table is not usable.
    """
    table = getattr(model_config, "max_position_embeddings", None)
    limits = [] if table is None else [table - (int(model_config.pad_token_id) + 1 if offset else 0)]
    stated = getattr(tokenizer, "model_max_length", None)
    if isinstance(stated, int) and stated < 10**9:  # transformers writes 10**30 for "not stated"
        limits.append(stated)
    return int(min(limits, default=_LONGEST_ROW))


def default_row_length(limit: int) -> int:
    """Return how long rows are when nobody says: the model's limit, but no more than 8,192 tokens."""
    return min(limit, _LONGEST_ROW)


def write_folder(target: Path, write: Callable[[Path], None]) -> None:
    """Write a folder completely or not at all.

    Parameters
    ----------
    target : Path
        Replaced if it is a checkpoint already; must not hold anything else.
    write : callable
        Given the folder to fill.

    Raises
    ------
    CheckpointError
        If ``target`` exists and is neither empty nor a checkpoint.
    """
    empty = target.is_dir() and not any(target.iterdir())
    if target.exists() and not empty and not (target / "config.json").is_file():
        raise CheckpointError(f"{target} exists and is not a checkpoint; choose another folder")
    scratch, retired = (target.with_name(f".{target.name}-{uuid4().hex}") for _ in range(2))
    scratch.mkdir(parents=True)
    try:
        write(scratch)
        if target.exists():
            target.rename(retired)
        scratch.rename(target)
    finally:
        for leftover in (scratch, retired):
            shutil.rmtree(leftover, ignore_errors=True)
