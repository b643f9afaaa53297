"""What a file holds, told from its name."""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Literal

from lmk_embed.errors import missing_extra

Kind = Literal["text", "markdown", "rst", "html", "code", "pdf"]

# fmt: off
_SUFFIXES: dict[Kind, frozenset[str]] = {
    "text": frozenset((
        ".txt", ".text", ".log", ".adoc", ".asciidoc", ".org", ".textile", ".wiki", ".srt", ".vtt", ".eml",
    )),
    "markdown": frozenset((".md", ".markdown", ".mdown", ".mkd", ".mkdn", ".mdx", ".qmd", ".rmd")),
    "rst": frozenset((".rst", ".rest")),
    "html": frozenset((".html", ".htm", ".xhtml", ".xht", ".shtml")),
    "pdf": frozenset((".pdf",)),
}

_TEXT_NAMES = frozenset((
    "authors", "changelog", "changes", "contributing", "contributors", "copying", "copyright", "history",
    "install", "licence", "license", "maintainers", "news", "notice", "readme", "security", "thanks", "todo",
))

# Known to Pygments, but not what someone who indexes a folder wants to find: data dumps, pictures, by-products
# of typesetting, translation tables, and above all private keys. All of them can be named explicitly.
_NOT_CODE = frozenset((
    ".ans", ".arw", ".aux", ".eps", ".gcode", ".json", ".json5", ".jsonl", ".jsonld", ".ldif", ".lock",
    ".mhtml", ".mo", ".nb", ".ndjson", ".objdump", ".pem", ".po", ".pot", ".ps", ".rss", ".sgf", ".svg",
    ".toc", ".ttl", ".wsdl", ".xbm", ".xbrl", ".xmi", ".xml", ".xpm", ".xsd",
))
_KEYS = "id_*"
# fmt: on


def kind_of(path: Path) -> Kind | None:
    """Tell what a file holds from its name, without opening it.

    Parameters
    ----------
    path : Path
        Only the name counts; upper and lower case are the same.

    Returns
    -------
    Kind or None
        None for a file that is not read unless it is named explicitly: pictures, archives, office formats,
        and data such as JSON, CSV or XML. Source code is every suffix and file name that Pygments knows.

    Raises
    ------
    MissingExtraError
        If Pygments is not installed.

    Examples
    --------
    >>> [kind_of(Path(name)) for name in ("a.TXT", "README", "b.md", "c.htm", "d.rs", "Makefile")]
    ['text', 'text', 'markdown', 'html', 'code', 'code']
    >>> [kind_of(Path(name)) for name in ("e.png", "f.json", "id_rsa")]
    [None, None, None]
    """
    name, suffix = path.name.lower(), path.suffix.lower()
    for kind, suffixes in _SUFFIXES.items():
        if suffix in suffixes:
            return kind
    if name in _TEXT_NAMES:
        return "text"
    return "code" if _is_code(name, suffix) else None


def _is_code(name: str, suffix: str) -> bool:
    if suffix in _NOT_CODE or fnmatchcase(name, _KEYS):
        return False
    plain, globs = _code_patterns()
    return f"*{suffix}" in plain or name in plain or any(fnmatchcase(name, pattern) for pattern in globs)


@cache
def _code_patterns() -> tuple[frozenset[str], tuple[str, ...]]:
    """Return the file name patterns of Pygments in lower case: ``*.suffix`` and plain names, and real globs."""
    try:
        from pygments.lexers import get_all_lexers  # type: ignore[import-untyped]
    except ImportError as error:
        raise missing_extra("pygments", "cli") from error
    # plugins=False: what is installed beside us must not change which files are indexed.
    patterns = {p.lower() for _, _, filenames, _ in get_all_lexers(plugins=False) for p in filenames}
    globs = {p for p in patterns if any(c in p.removeprefix("*.") for c in "*?[")}
    return frozenset(patterns - globs), tuple(sorted(globs))
