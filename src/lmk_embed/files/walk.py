"""Which files to read: folders are walked in a fixed order, every file comes once."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lmk_embed.errors import ConfigError, missing_extra
from lmk_embed.files.kinds import kind_of
from lmk_embed.files.read import unreadable
from lmk_embed.files.skip import NoSuchPathError, SkippedFile, printable

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

OnSkip = Callable[[SkippedFile], object]

IGNORED_FOLDERS = frozenset(("node_modules", "__pycache__", "CVS", "_darcs"))
"""Folders that are never entered, besides those whose name begins with a dot."""


def walk(
    paths: Iterable[str | os.PathLike[str]],
    *,
    include: Iterable[str] = (),
    exclude: Iterable[str] = (),
    on_skip: OnSkip,
) -> Iterator[Path]:
    """Find the files to read.

    Left out without a word: names in a folder that begin with a dot, the folders of ``IGNORED_FOLDERS``, and what
    the patterns leave out. Everything else that is seen and not returned goes to ``on_skip``.

    Parameters
    ----------
    paths : iterable of path-like
        Folders, and files. A file that is named here is read whatever its suffix is, also when a folder named here
        holds it.
    include, exclude : iterable of str
        Patterns as in ``.gitignore``, relative to the folder given. With ``include``, only matching files
        of folders are taken; files named in ``paths`` need no match. ``exclude`` wins over both; for a file named
        in ``paths`` it is compared with the file's name.
    on_skip : callable
        Is given a ``SkippedFile`` for each file that is left out, and for each folder that cannot be listed or is
        reached only by a link. Links to folders are not followed: they lead out of what was asked for.

    Returns
    -------
    iterator of Path
        Below the path given, sorted by name, depth first; then the files that are reached only by links. A file
        that can be reached several ways comes once, by its own name if possible. Hard links are different files.

    Raises
    ------
    NoSuchPathError
        If paths do not exist; before anything is returned.
    ConfigError
        If a pattern is malformed.
    TypeError
        If a single string is given instead of several.
    MissingExtraError
        If the extra ``[cli]`` is not installed.
    """
    given = [os.fspath(path) for path in _several(paths, "paths")]
    if missing := [path for path in given if not os.path.lexists(path)]:
        names = ", ".join(repr(printable(path)) for path in missing)
        raise NoSuchPathError(f"no such file or folder: {names}")
    walker = _Walker(_spec(include, "include"), _spec(exclude, "exclude"), on_skip)
    return walker.walk([Path(path) for path in given])


@dataclass(frozen=True, slots=True)
class _Entry:
    """Something in a folder: its path, the path relative to the folder given, and the path without links."""

    path: Path
    relative: str
    real: Path


class _Walker:
    def __init__(self, include: GitIgnoreSpec | None, exclude: GitIgnoreSpec | None, on_skip: OnSkip) -> None:
        self._include = include
        self._exclude = exclude
        self._on_skip = on_skip
        self._named: set[Path] = set()
        self._seen: set[Path] = set()
        self._links: list[_Entry] = []

    def walk(self, roots: list[Path]) -> Iterator[Path]:
        self._named = {_real(root) for root in roots if not _is_folder(root)}
        for root in roots:
            if _is_folder(root):
                yield from self._walk_folder(_Entry(root, "", _real(root)))
            elif not self._excluded(root.name) and self._accept(_Entry(root, root.name, _real(root))):
                yield root
        # Last, so that a file is known by its own name wherever it has one in the folders given.
        for link in self._links:
            if _is_folder(link.path):
                self._report_linked_folder(link)
            elif self._accept(link):
                yield link.path

    def _walk_folder(self, root: _Entry) -> Iterator[Path]:
        stack = [root]  # our own, because folders can be nested deeper than calls
        while stack:
            entry = stack.pop()
            if entry is not root and entry.path.is_symlink():
                self._links.append(_Entry(entry.path, entry.relative, _real(entry.path)))
            elif _is_folder(entry.path):
                stack += reversed(self._children(entry))
            elif self._accept(entry):
                yield entry.path

    def _children(self, folder: _Entry) -> list[_Entry]:
        """List a folder, without what is hidden or excluded; the second time nothing is left."""
        if folder.real in self._seen:
            return []
        self._seen.add(folder.real)
        try:
            names = sorted(child.name for child in folder.path.iterdir())
        except OSError as error:
            self._on_skip(unreadable(folder.path, error))
            return []
        children = []
        for name in names:
            path, relative = folder.path / name, f"{folder.relative}{name}"
            hidden = name.startswith(".")
            if not hidden and _is_folder(path):
                relative, hidden = f"{relative}/", name in IGNORED_FOLDERS
            if not hidden and not self._excluded(relative):
                children.append(_Entry(path, relative, folder.real / name))
        return children

    def _accept(self, entry: _Entry) -> bool:
        """Tell whether to read a file, and report it if it was wanted and cannot be read."""
        named = entry.real in self._named
        included = named or self._include is None or self._include.match_file(entry.relative)
        if entry.real in self._seen or not included:
            return False
        self._seen.add(entry.real)
        skipped = _unsuitable(entry.path, named=named)
        if skipped is not None:
            self._on_skip(skipped)
        return skipped is None

    def _report_linked_folder(self, link: _Entry) -> None:
        if link.real not in self._seen:
            self._seen.add(link.real)
            message = f"a link to the folder {printable(link.real)}, not followed; name that folder to read it"
            self._on_skip(SkippedFile(link.path, "linked_folder", message))

    def _excluded(self, relative: str) -> bool:
        return self._exclude is not None and self._exclude.match_file(relative)


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))  # Path.resolve() raises RuntimeError for a loop of links


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # not even its type can be asked for; reported when the file is looked at
        return False


def _unsuitable(path: Path, *, named: bool) -> SkippedFile | None:
    """Tell from the name and the type of a file why it cannot be read; its content is looked at later."""
    try:
        os.fspath(path).encode()
    except UnicodeEncodeError:
        # No store and no JSON reader takes such a name back.
        return SkippedFile(path, "bad_name", "its name is not valid Unicode; rename it")
    try:
        path.stat()
    except OSError as error:
        return unreadable(path, error)
    if not path.is_file():
        return SkippedFile(path, "not_a_file", "neither a file nor a folder")
    if not named and kind_of(path) is None:
        what = f"files of the kind {path.suffix!r} are" if path.suffix else "files without a known suffix are"
        return SkippedFile(path, "unsupported", f"{what} not read; to read it as text, name the file itself")
    return None


def _several(values: Iterable[str | os.PathLike[str]], name: str) -> list[str | os.PathLike[str]]:
    if isinstance(values, (str, os.PathLike)):
        raise TypeError(f"{name} must be a list, got the single value {values!r}")
    return list(values)


def _spec(patterns: Iterable[str], name: str) -> GitIgnoreSpec | None:
    lines = [str(pattern) for pattern in _several(patterns, name)]
    if not lines:
        return None
    try:
        from pathspec import GitIgnoreSpec
    except ImportError as error:
        raise missing_extra("pathspec", "cli") from error
    try:
        return GitIgnoreSpec.from_lines(lines)
    except ValueError as error:
        raise ConfigError(f"{name}: {error}") from error
