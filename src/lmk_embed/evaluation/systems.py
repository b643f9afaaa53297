"""The systems that can be compared, by name.

===============================  =================================================================================
``landmark[:G]``                 the model's own defaults; chunks of at most G tokens
``late-chunking[:G]``            means of token states after one long pass, sentences packed up to G tokens (64)
``split-and-embed[:N[:O%]]``     recursive splitter at N tokens with O per cent overlap, each chunk embedded alone
``smoothed[:N[:O%]]``            the same, each vector plus 0.3 x its neighbours
``truncated``                    one vector: what fits into one row of the model
``windows``                      rows as long as the model reads; the document is their mean
===============================  =================================================================================

Systems of the model itself (``landmark``, ``late-chunking``) also take ``setting=value`` parts, with the
attributes of :class:`lmk_embed.LandmarkConfig`: ``landmark:128:boundaries=fixed``.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from lmk_embed.config import LandmarkConfig
from lmk_embed.errors import ConfigError
from lmk_embed.evaluation.embedders import Embedder, EncoderEmbedder
from lmk_embed.evaluation.models import Model
from lmk_embed.evaluation.splitting import SplitEmbedder
from lmk_embed.evaluation.vectors import CorpusVectors

#: Chunk sizes that a bare ``split-and-embed`` or ``smoothed`` stands for.
SIZES = (64, 128, 256)
OVERLAP = 20
#: Weight of each neighbour in ``smoothed``.
NEIGHBOUR = 0.3
#: Tokens of a chunk in ``late-chunking``.
LATE = 64

_ENCODER = ("landmark", "late-chunking")
_SPLIT = ("split-and-embed", "smoothed")
_WHOLE = ("truncated", "windows")
KINDS = _ENCODER + _SPLIT + _WHOLE
DEFAULT = ("landmark", "split-and-embed", "late-chunking")


@dataclass(frozen=True, slots=True)
class SystemSpec:
    """A system by name, before any model is loaded.

    Attributes
    ----------
    kind : str
        One of :data:`KINDS`.
    tokens : int or None
        Most tokens of a chunk; None: the kind's default.
    overlap : int
        Per cent; of splitters only.
    settings : mapping of str to Any
        Further settings of an encoder.
    """

    kind: str
    tokens: int | None = None
    overlap: int = 0
    settings: dict[str, Any] = field(default_factory=dict, hash=False)

    @property
    def name(self) -> str:
        """The name it can be parsed from again."""
        parts = [self.kind]
        parts += [str(self.tokens)] if self.tokens is not None else []
        parts += [f"{self.overlap}%"] if self.overlap else []
        parts += [f"{key}={_shown(value)}" for key, value in self.settings.items()]
        return ":".join(parts)


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def parse_systems(names: Iterable[str]) -> list[SystemSpec]:
    """Read names of systems; a bare ``split-and-embed`` or ``smoothed`` stands for all sizes.

    Parameters
    ----------
    names : iterable of str

    Returns
    -------
    list of SystemSpec
        Each once, in the order given.

    Raises
    ------
    ConfigError
        If a name is unknown (the nearest is suggested) or its parts make no sense.

    Examples
    --------
    >>> [spec.name for spec in parse_systems(["landmark", "split-and-embed"])]
    ['landmark', 'split-and-embed:64', 'split-and-embed:128', 'split-and-embed:256',
     'split-and-embed:64:20%', 'split-and-embed:128:20%', 'split-and-embed:256:20%']
    >>> parse_systems(["split-and-embd:64"])
    Traceback (most recent call last):
    lmk_embed.errors.ConfigError: unknown system 'split-and-embd:64'; did you mean 'split-and-embed:64'?
    """
    specs: dict[str, SystemSpec] = {}
    for name in names:
        for spec in _parse(name):
            specs.setdefault(spec.name, spec)
    return list(specs.values())


def _parse(name: str) -> list[SystemSpec]:
    kind, *parts = name.strip().split(":")
    if kind not in KINDS:
        near = difflib.get_close_matches(kind, KINDS, n=1)
        hint = f"did you mean {':'.join([near[0], *parts])!r}?" if near else f"there are {', '.join(KINDS)}"
        raise ConfigError(f"unknown system {name!r}; {hint}")
    if kind in _WHOLE and parts:
        raise ConfigError(f"system {name!r}: {kind} has no parts; give it as {kind!r}")
    if kind == "split-and-embed" and not parts:
        return [SystemSpec(kind, size, overlap) for overlap in (0, OVERLAP) for size in SIZES]
    if kind == "smoothed" and not parts:
        return [SystemSpec(kind, size) for size in SIZES]
    tokens, overlap, settings = None, 0, {}
    for part in parts:
        if part.isdecimal() and tokens is None and int(part):
            tokens = int(part)
        elif kind in _SPLIT and part.endswith("%") and part[:-1].isdecimal() and int(part[:-1]) < 100:
            overlap = int(part[:-1])
        elif kind in _ENCODER and "=" in part:
            key, _, value = part.partition("=")
            settings[key] = _value(value)
        else:
            form = "TOKENS:OVERLAP%" if kind in _SPLIT else "GRANULARITY:setting=value"
            raise ConfigError(f"system {name!r}: cannot read {part!r}; the form is {kind}:{form}")
    if kind in _SPLIT and tokens is None:
        raise ConfigError(f"system {name!r} needs a number of tokens, such as {kind}:{SIZES[0]}:{overlap}%")
    LandmarkConfig().override(**settings)  # a wrong setting is refused before any model is loaded
    return [SystemSpec(kind, tokens, overlap, settings)]


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


@dataclass(frozen=True, slots=True)
class System:
    """An embedder, and what is done to its vectors afterwards.

    Attributes
    ----------
    name : str
    model : str
        The checkpoint, as it was named.
    embedder : Embedder
        Its vectors are what the cache keeps, so that ``smoothed`` costs no encoding beside ``split-and-embed``.
    neighbour : float
        Weight of the neighbours; 0: none.
    """

    name: str
    model: str
    embedder: Embedder
    neighbour: float = 0.0

    def finish(self, vectors: CorpusVectors) -> CorpusVectors:
        """Turn the embedder's vectors into the system's."""
        return vectors.smoothed(self.neighbour) if self.neighbour else vectors

    def settings(self) -> dict[str, Any]:
        """Return what the report says about it."""
        extra = {"neighbour_weight": self.neighbour} if self.neighbour else {}
        return {**self.embedder.settings, **extra}


def build(spec: SystemSpec, model: Model, base: Model) -> System:
    """Put a system together.

    Parameters
    ----------
    spec : SystemSpec
    model : Model
        What ``landmark`` uses.
    base : Model
        What the other systems use.

    Raises
    ------
    MissingExtraError
        If a library of the ``eval`` extra is not installed.
    CheckpointError, ConfigError
        If the model does not load or a setting does not fit it.
    """
    if spec.kind in _SPLIT:
        assert spec.tokens is not None  # the parser saw to it
        twin = SystemSpec("split-and-embed", spec.tokens, spec.overlap)
        embedder = SplitEmbedder(twin.name, base, spec.tokens, spec.overlap)
        return System(spec.name, base.name, embedder, NEIGHBOUR if spec.kind == "smoothed" else 0.0)
    source = model if spec.kind == "landmark" else base
    return System(spec.name, source.name, EncoderEmbedder(spec.name, source.encoder(**_settings(spec, base))))


def _settings(spec: SystemSpec, base: Model) -> dict[str, Any]:
    if spec.kind == "landmark":
        return {**({} if spec.tokens is None else {"granularity": spec.tokens}), **spec.settings}
    if spec.kind == "late-chunking":
        settings = {
            "pooling": "span_mean",
            "context": "window",
            "boundaries": "sentence",
            "neighbour_weight": 0.0,
        }
        return {**settings, "granularity": spec.tokens or LATE, **spec.settings}
    pooling = base.default.config.base_pooling
    overflow = "truncate" if spec.kind == "truncated" else "window"
    return {
        "pooling": pooling,
        "boundaries": "fixed",
        "granularity": None,
        "context": "window",
        "neighbour_weight": 0.0,
        "overflow": overflow,
    }
