"""Values of options that several commands share."""

from __future__ import annotations

import json
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any

from lmk_embed.errors import ConfigError


class Per(StrEnum):
    """What a hit is."""

    chunk = "chunk"
    passage = "passage"
    document = "document"


class Boundaries(StrEnum):
    """Where chunks may end."""

    sentence = "sentence"
    fixed = "fixed"
    markdown = "markdown"
    code = "code"


def settings_of(**options: Any) -> dict[str, Any]:
    """Return the options that were given, as plain values."""
    return {
        name: value.value if isinstance(value, StrEnum) else value
        for name, value in options.items()
        if value is not None
    }


def parse_where(conditions: Sequence[str]) -> dict[str, Any] | None:
    """Turn ``key=value`` pairs and JSON filters into one Chroma filter; all of them must hold.

    Parameters
    ----------
    conditions : sequence of str
        A value that is JSON (``3``, ``true``, ``"text"``) is taken as that, anything else as text.

    Returns
    -------
    dict or None

    Raises
    ------
    ConfigError
        If a condition is neither.

    Examples
    --------
    >>> parse_where(["kind=markdown", '{"year": {"$gte": 2024}}'])
    {'$and': [{'kind': {'$eq': 'markdown'}}, {'year': {'$gte': 2024}}]}
    """
    filters = [_condition(text) for text in conditions]
    if len(filters) > 1:
        return {"$and": filters}
    return filters[0] if filters else None


def _condition(text: str) -> dict[str, Any]:
    if text.lstrip().startswith("{"):
        try:
            parsed = json.loads(text)
        except json.JSONDecodeError as error:
            raise ConfigError(f"--where {text!r} is not valid JSON: {error}") from error
        return dict(parsed)
    key, sign, value = text.partition("=")
    if not sign or not key:
        raise ConfigError(f"--where {text!r} is neither key=value nor a JSON filter")
    try:
        plain = json.loads(value)
    except json.JSONDecodeError:
        plain = value
    if key == "path":  # stored absolute, shown relative
        from lmk_embed.cli.indexing import document_id

        return {key: {"$eq": document_id(Path(value))}}
    return {key: {"$eq": plain if isinstance(plain, str | int | float | bool) else value}}
