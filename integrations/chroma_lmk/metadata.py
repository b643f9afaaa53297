"""The caller's metadata in Chroma's: what Chroma keeps exactly stays under its own key, the rest is carried.

Chroma holds strings, 64-bit integers, floats, booleans and lists of one of them. It cannot hold ``None``, an
empty or mixed list or a mapping; it turns larger integers into floats, drops the sign of ``-0.0``, and may give
a float with many digits back one unit in the last place off. All of those are carried in one JSON string under a
key of ours and come back exactly. Floats stay under their own key as well, so that filters see them. What even
JSON would change, such as a tuple or a datetime, is refused before anything is embedded.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

PREFIX = "lmk:"
CARRIED = "lmk:json"

_SCALARS = (str, int, float, bool)
# A decimal with this many digits and this power of ten is parsed exactly by every parser: the digits fit into a
# double and so does the power, and one correctly rounded operation joins them.
_EXACT_DIGITS = 14
_EXACT_EXPONENT = 22
_MAX_DEPTH = 100
_MAX_BITS = 10_000  # far below the length at which Python refuses to turn digits into an integer

Stored = dict[str, Any]


def encode(metadata: Mapping[str, Any] | None) -> tuple[Stored, list[str]]:
    """Translate a caller's metadata into what is handed to Chroma.

    Parameters
    ----------
    metadata : mapping of str to Any or None
        ``None`` is the same as empty.

    Returns
    -------
    stored : dict
        Values Chroma keeps, and the carried ones as JSON under ``"lmk:json"`` if there are any.
    problems : list of str
        One line for every key that cannot be stored; the result is only usable if there are none.

    Examples
    --------
    >>> encode({"tags": ["a", "b"], "year": 2026, "editor": None})
    ({'tags': ['a', 'b'], 'year': 2026, 'lmk:json': '{"editor": null}'}, [])
    >>> encode({"size": (1, 2)})[1]
    ["'size': tuple (use a list)"]
    """
    stored: Stored = {}
    carried: Stored = {}
    problems: list[str] = []
    for key, value in (metadata or {}).items():
        problem = _key_problem(key) or _value_problem(value)
        if problem:
            problems.append(f"{key!r}: {problem}")
            continue
        native = _chroma_key(key) and _chroma_value(value)
        if native:
            stored[key] = value
        if not native or not _kept_exactly(value):
            carried[key] = value
    if carried:
        stored[CARRIED] = json.dumps(carried, allow_nan=False)
    return stored, problems


def decode(stored: Mapping[str, Any] | None) -> dict[str, Any]:
    """Give a caller's metadata back as it was given.

    Parameters
    ----------
    stored : mapping or None
        The metadata of a row, as Chroma returns it.

    Returns
    -------
    dict
        Without any key of ours.

    Examples
    --------
    >>> decode({"year": 2026, "lmk:json": '{"editor": null}', "lmk:chunk": 3})
    {'year': 2026, 'editor': None}
    """
    stored = stored or {}
    own = {key: value for key, value in stored.items() if not key.startswith(PREFIX)}
    if CARRIED in stored:
        own |= json.loads(stored[CARRIED])
    return own


def canonical(metadata: Mapping[str, Any] | None) -> str:
    """Write metadata as one string: equal strings for equal keys, values and types, in any order.

    Examples
    --------
    >>> canonical({"b": 1, "a": True}) == canonical({"a": True, "b": 1})
    True
    >>> canonical({"a": 1}) == canonical({"a": 1.0})
    False
    """
    return json.dumps(dict(metadata or {}), sort_keys=True, allow_nan=False)


def is_utf8(text: str) -> bool:
    """Whether a string holds no half of a surrogate pair, which no database can write."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _key_problem(key: Any) -> str | None:
    if type(key) is not str:
        return f"key of type {type(key).__name__} (use a string)"
    if key.startswith(PREFIX):
        return f"keys that begin with {PREFIX!r} are the store's own (rename it)"
    return None if is_utf8(key) else "the key holds a lone surrogate (repair the string)"


def _value_problem(value: Any, depth: int = 0) -> str | None:
    """Say why a value would not survive JSON; exact types only, so that what comes back has the same type."""
    if value is None or type(value) is bool:
        return None
    if type(value) is str:
        return None if is_utf8(value) else "str with a lone surrogate (repair the string)"
    if type(value) is int:
        return None if value.bit_length() <= _MAX_BITS else "int too large (use a string)"
    if type(value) is float:
        return None if math.isfinite(value) else f"float {value} (use None)"
    return _container_problem(value, depth)


def _container_problem(value: Any, depth: int) -> str | None:
    if depth >= _MAX_DEPTH:
        return f"nested deeper than {_MAX_DEPTH} levels (flatten it)"
    if type(value) is list:
        found = (_value_problem(item, depth + 1) for item in value)
        return next((f"list with {problem}" for problem in found if problem), None)
    if type(value) is dict:
        bad_key = next((key for key in value if type(key) is not str or not is_utf8(key)), None)
        if bad_key is not None:
            return f"dict with key {bad_key!r} of type {type(bad_key).__name__} (use a valid string)"
        found = (_value_problem(item, depth + 1) for item in value.values())
        return next((f"dict with {problem}" for problem in found if problem), None)
    return f"{_type_name(value)} ({_remedy(value)})"


def _type_name(value: Any) -> str:
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _remedy(value: Any) -> str:
    if isinstance(value, tuple | set | frozenset):
        return "use a list"
    if hasattr(value, "isoformat"):
        return "use .isoformat()"
    if hasattr(value, "tolist"):
        return "use .tolist()"
    return "use str, int, float, bool, None, or a list or dict of them"


def _chroma_key(key: str) -> bool:
    # Chroma refuses the first three and loses the last one without a word.
    return bool(key) and not key.startswith(("#", "$", "chroma:"))


def _chroma_value(value: Any) -> bool:
    if type(value) is list:
        return bool(value) and len({type(item) for item in value}) == 1 and all(map(_chroma_scalar, value))
    return _chroma_scalar(value)


def _chroma_scalar(value: Any) -> bool:
    if type(value) is int:
        return -(2**63) <= value < 2**63
    return type(value) in _SCALARS


def _kept_exactly(value: Any) -> bool:
    if type(value) is list:
        return all(map(_kept_exactly, value))
    if type(value) is not float:
        return True
    _, digits, exponent = Decimal(repr(value)).as_tuple()
    short = len(digits) <= _EXACT_DIGITS and abs(int(exponent)) <= _EXACT_EXPONENT
    return short and not (value == 0 and math.copysign(1, value) < 0)
