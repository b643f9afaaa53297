"""Every setting that changes vectors, in one frozen value with a JSON form and a fingerprint."""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal, get_args

from lmk_embed.errors import ConfigError

Pooling = Literal["landmark", "span_mean", "multi_cls", "mean", "cls", "lasttoken"]
RowPooling = Literal["mean", "cls", "lasttoken"]
Boundaries = Literal["sentence", "fixed", "markdown", "code"]
Context = Literal["window", "blend"]
Overflow = Literal["window", "truncate", "error"]

#: Bumped whenever the same weights and settings would give other vectors than before.
LAYOUT_VERSION = 1

DEFAULT_GRANULARITY = 64


@dataclass(frozen=True, slots=True)
class LandmarkConfig:
    """How texts become vectors; stored beside the weights as ``lmk_config.json``.

    Attributes
    ----------
    pooling : {"landmark", "span_mean", "multi_cls", "mean", "cls", "lasttoken"}
        ``landmark``: the state at the landmark token that closes a chunk. ``span_mean``: the mean of the chunk's
        token states after one long pass ("late chunking"), for models without landmark training.
        ``multi_cls``: the state of a ``[CLS]`` in front of each chunk. ``mean``, ``cls``, ``lasttoken``: one
        vector for a whole row, so each chunk is a row of its own and sees nothing of its neighbours.
    boundaries : {"sentence", "fixed", "markdown", "code"}
        Where a chunk may end: whole sentences packed up to ``granularity`` tokens, every ``granularity``
        tokens, Markdown structure, or source code structure.
    granularity : int or None
        Most content tokens of a chunk; None: as many as fit into one row.
    language : str or None
        ISO code for ``sentence`` (None: English rules, which also know CJK punctuation); for ``code`` the name
        of a tree-sitter grammar such as ``python`` (None: blank lines and lines).
    context : {"window", "blend"}
        ``blend`` adds the vector of the chunk alone (a second pass) to that of the chunk in its window.
    overflow : {"window", "truncate", "error"}
        What happens to a text above ``max_seq_length``: overlapping windows of whole chunks, a visible cut, or
        an error.
    max_seq_length : int or None
        Most tokens of a row, special tokens and prompt included; None: what the checkpoint says.
    overlap : int or None
        Most tokens that two neighbouring windows share; None: a quarter of the row, at most 128.
    truncate_dim : int or None
        Keep only the first dimensions (Matryoshka checkpoints).
    query_prompt, document_prompt : str
        Put in front of each row of that role; never part of a span.
    include_prompt : bool
        Whether a prompt's token states count for means; if not, ``cls`` takes the first state behind it.
    base_pooling : {"mean", "cls", "lasttoken"}
        How the base model was trained to pool short texts; used for queries of ``span_mean`` models and for
        the chunk alone in ``blend``.
    neighbour_weight : float
        How much of the states of both neighbouring chunks is added to the state of a chunk, from 0 to 1. A little
        of it helps in text whose paragraphs belong together.
    landmark_token : str or None
        None: the tokenizer's separator, else the token it closes a text with, else its end-of-text token.
    landmark_trained : bool
        Whether the weights were trained with landmarks.

    Raises
    ------
    ConfigError
        If a value is not one of those above.

    Examples
    --------
    >>> config = LandmarkConfig(granularity=128)
    >>> LandmarkConfig.from_json(config.to_json()) == config
    True
    """

    pooling: Pooling = "landmark"
    boundaries: Boundaries = "sentence"
    granularity: int | None = DEFAULT_GRANULARITY
    language: str | None = None
    context: Context = "window"
    overflow: Overflow = "window"
    max_seq_length: int | None = None
    overlap: int | None = None
    truncate_dim: int | None = None
    query_prompt: str = ""
    document_prompt: str = ""
    include_prompt: bool = True
    base_pooling: RowPooling = "mean"
    neighbour_weight: float = 0.0
    landmark_token: str | None = None
    landmark_trained: bool = False

    def __post_init__(self) -> None:
        """Check each value once, where it enters."""
        for name, kind in _CHOICES.items():
            if getattr(self, name) not in get_args(kind):
                options = ", ".join(map(repr, get_args(kind)))
                raise ConfigError(f"{name} must be one of {options}, got {getattr(self, name)!r}")
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
                raise ConfigError(f"{name} must be an integer of at least {least} or None, got {value!r}")
        weight = self.neighbour_weight
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 <= weight <= 1:
            raise ConfigError(f"neighbour_weight must be a number from 0 to 1, got {weight!r}")
        for name in ("query_prompt", "document_prompt"):
            if not isinstance(getattr(self, name), str):
                raise ConfigError(f'{name} must be a string ("" switches it off), got {getattr(self, name)!r}')
        if self.context == "blend" and self.pooling in get_args(RowPooling):
            raise ConfigError(
                f'context="blend" needs chunks that see their neighbours; with pooling={self.pooling!r} each '
                'chunk is alone already. Use pooling="span_mean" or "landmark".'
            )

    @property
    def pools_rows(self) -> bool:
        """Whether a whole row becomes one vector, so that each chunk is a row of its own."""
        return self.pooling in get_args(RowPooling)

    def override(self, **settings: Any) -> LandmarkConfig:
        """Return a copy with other values; names that do not exist are refused.

        Parameters
        ----------
        **settings
            Any attribute of the class.

        Raises
        ------
        ConfigError
            If a name is unknown (the nearest known name is suggested) or a value is impossible.

        Examples
        --------
        >>> LandmarkConfig().override(granularty=3)
        Traceback (most recent call last):
        lmk_embed.errors.ConfigError: unknown setting 'granularty'; did you mean 'granularity'?
        """
        known = [field.name for field in fields(self)]
        for name in settings:
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"known settings: {', '.join(known)}"
                raise ConfigError(f"unknown setting {name!r}; {hint}")
        return replace(self, **settings)

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as JSON-able values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, settings: Mapping[str, Any]) -> LandmarkConfig:
        """Build a config from what :meth:`to_dict` returned; missing names take their defaults."""
        return cls().override(**settings)

    def to_json(self) -> str:
        """Return the settings as JSON text, keys sorted."""
        return json.dumps({"version": LAYOUT_VERSION, **self.to_dict()}, indent=2, sort_keys=True) + "\n"

    @classmethod
    def from_json(cls, text: str) -> LandmarkConfig:
        """Build a config from JSON text.

        Raises
        ------
        ConfigError
            If the text is not a JSON object, was written by a newer layout version, or a setting is unknown.
        """
        try:
            settings = json.loads(text)
        except json.JSONDecodeError as error:
            raise ConfigError(f"the landmark configuration is not valid JSON: {error}") from error
        if not isinstance(settings, dict):
            raise ConfigError(f"the landmark configuration must be a JSON object, got {type(settings).__name__}")
        version = settings.pop("version", LAYOUT_VERSION)
        if version != LAYOUT_VERSION:
            raise ConfigError(
                f"the checkpoint uses layout version {version}, this lmk-embed knows {LAYOUT_VERSION}. "
                "Install the lmk-embed version that wrote it."
            )
        return cls.from_dict(settings)

    def fingerprint(self) -> str:
        """Return a hex digest of every setting and of the layout version."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()


_CHOICES: dict[str, Any] = {
    "pooling": Pooling,
    "boundaries": Boundaries,
    "context": Context,
    "overflow": Overflow,
    "base_pooling": RowPooling,
}
_LEAST = {"granularity": 1, "max_seq_length": 4, "overlap": 0, "truncate_dim": 1}
