"""Training text from folders: read once as a stream, then kept on disk, memory-mapped, for random access."""

from __future__ import annotations

import gzip
import json
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from lmk_embed.errors import LandmarkError, missing_extra
from lmk_embed.tokens import encodable

ROWS = (".jsonl", ".jsonl.gz")
PLAIN = (".txt", ".md")
#: Problems that are described; all are counted.
_SHOWN = 20
#: Characters written at once.
_BLOCK = 4_000_000


class CorpusError(LandmarkError, ValueError):
    """Training text cannot be used: no files, no rows, or no source that was asked for."""


@dataclass(slots=True)
class Facts:
    """What was read.

    Attributes
    ----------
    sources : Counter of str
        Texts by source: the ``source`` of a row, or the name of its file.
    characters : int
    left_out : Counter of str
        Texts of sources that were not asked for.
    problems : Counter of str
        Bad rows by what was wrong with them.
    examples : list of str
        The first of them, with file and line.
    """

    sources: Counter[str] = field(default_factory=Counter)
    characters: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    problems: Counter[str] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)

    def bad(self, where: str, problem: str) -> None:
        """Count a row that cannot be used."""
        self.problems[problem] += 1
        if len(self.examples) < _SHOWN:
            self.examples.append(f"{where}: {problem}")

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-able values."""
        return {
            "sources": dict(sorted(self.sources.items())),
            "texts": self.sources.total(),
            "characters": self.characters,
            "left_out": self.left_out.total(),
            "problems": dict(self.problems),
        }


@dataclass(frozen=True, slots=True, eq=False)
class TextCorpus:
    """Texts by number.

    Attributes
    ----------
    texts : sequence of str
        Memory-mapped: a text is read when it is asked for.
    lengths : ndarray of int64, shape (n,)
        Characters of each.
    facts : Facts
    """

    texts: Sequence[str]
    lengths: NDArray[np.int64]
    facts: Facts

    def __len__(self) -> int:
        """Return the number of texts."""
        return len(self.lengths)


def read_corpus(
    paths: Sequence[Path], cache: Path, *, sources: Sequence[str] = (), field_names: Sequence[str] = ("text",)
) -> TextCorpus:
    """Read all texts below some paths.

    Parameters
    ----------
    paths : sequence of Path
        Files or folders: ``.jsonl`` and ``.jsonl.gz`` with a JSON object a line, ``.txt`` and ``.md`` with a text
        a file, in UTF-8.
    cache : Path
        Folder for the memory-mapped copy.
    sources : sequence of str
        Patterns such as ``python-*`` for the ``source`` of a row (the name of the file where a row has none);
        others are left out. Empty: all.
    field_names : sequence of str
        Where a row's text is; the first that it has.

    Returns
    -------
    TextCorpus
        Rows that cannot be used are counted in its ``facts``.

    Raises
    ------
    CorpusError
        If a path does not exist, or nothing is left to train on.
    MissingExtraError
        If ``datasets`` is not installed.
    """
    try:
        import pyarrow as pa
    except ImportError as error:
        raise missing_extra("pyarrow", "train") from error

    files, facts = text_files(paths), Facts()
    cache.mkdir(parents=True, exist_ok=True)
    part, stored = cache / "texts.part", cache / "texts.arrow"
    lengths: list[int] = []
    schema = pa.schema({"text": pa.large_string()})
    with pa.OSFile(str(part), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        for block in _blocks(_chosen(files, tuple(field_names), tuple(sources), facts)):
            writer.write_batch(pa.record_batch([pa.array(block, type=pa.large_string())], schema=schema))
            lengths += map(len, block)
    part.replace(stored)
    if not lengths:
        raise _nothing(files, sources, facts)
    column = pa.ipc.open_file(pa.memory_map(str(stored))).read_all().column("text")
    return TextCorpus(_Column(column), np.array(lengths, dtype=np.int64), facts)


class _Column(Sequence[str]):
    """An Arrow column as a sequence of strings."""

    def __init__(self, column: Any) -> None:
        self._column = column

    def __len__(self) -> int:
        return len(self._column)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [str(value) for value in self._column[index].to_pylist()]
        return str(self._column[index].as_py())


def text_files(paths: Sequence[Path], kinds: tuple[str, ...] = ROWS + PLAIN) -> list[tuple[Path, str]]:
    """Return every file to read, and what its texts are called when their rows do not say.

    Raises
    ------
    CorpusError
        If a path does not exist, or no file is of these kinds.
    """
    files: list[tuple[Path, str]] = []
    for path in paths:
        if path.is_file():
            files.append((path, path.name))
            continue
        if not path.is_dir():
            raise CorpusError(f"no such file or folder: {path}")
        inside = sorted(each for each in path.rglob("*") if each.is_file() and each.name.endswith(kinds))
        # Explanations beside the rows are no training text.
        if any(each.name.endswith(ROWS) for each in inside):
            inside = [each for each in inside if each.name.endswith(ROWS)]
        files += [(each, each.relative_to(path).as_posix()) for each in inside]
    if not files:
        raise CorpusError(
            f"no text in {', '.join(map(str, paths))}: expected files that end in {', '.join(kinds)}"
        )
    return files


def _chosen(
    files: Iterable[tuple[Path, str]], names: Sequence[str], sources: Sequence[str], facts: Facts
) -> Iterator[str]:
    for path, label in files:
        texts = _rows(path, label, names, facts) if label.endswith(ROWS) else _plain(path, label, facts)
        for source, text in texts:
            if sources and not any(fnmatchcase(source, pattern) for pattern in sources):
                facts.left_out[source] += 1
                continue
            facts.sources[source] += 1
            facts.characters += len(text)
            yield text


def _rows(path: Path, label: str, names: Sequence[str], facts: Facts) -> Iterator[tuple[str, str]]:
    for where, row in json_rows(path, label, facts):
        text = next((row[name] for name in names if name in row), None)
        if not isinstance(text, str):
            facts.bad(where, f"no text under {' or '.join(map(repr, names))}")
        elif not text.strip():
            facts.bad(where, "the text is blank")
        else:
            yield str(row.get("source") or label), encodable(text)


def json_rows(path: Path, label: str, facts: Facts) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the JSON objects of a file, one a line, each with file and line; what is none is counted.

    Parameters
    ----------
    path : Path
    label : str
        Its name; one that ends in ``.gz`` is decompressed.
    facts : Facts
        Where problems are counted.
    """
    try:
        with gzip.open(path, "rb") if label.endswith(".gz") else path.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                if not line.strip():
                    continue
                where = f"{path}, line {number}"
                try:
                    row = json.loads(line)
                except ValueError:
                    facts.bad(where, "not a JSON value in UTF-8")
                    continue
                if isinstance(row, dict):
                    yield where, row
                else:
                    facts.bad(where, "not a JSON object")
    except (OSError, EOFError, zlib.error) as error:
        facts.bad(str(path), f"cannot be read to its end: {error}")


def _plain(path: Path, label: str, facts: Facts) -> Iterator[tuple[str, str]]:
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        facts.bad(str(path), f"cannot be read: {error}")
        return
    if text.strip():
        yield label, text
    else:
        facts.bad(str(path), "the text is blank")


def _blocks(texts: Iterable[str]) -> Iterator[list[str]]:
    block: list[str] = []
    characters = 0
    for text in texts:
        block.append(text)
        characters += len(text)
        if characters >= _BLOCK:
            yield block
            block, characters = [], 0
    if block:
        yield block


def _nothing(files: Sequence[tuple[Path, str]], sources: Sequence[str], facts: Facts) -> CorpusError:
    reasons = [f"{count} rows: {problem}" for problem, count in facts.problems.most_common(3)]
    if facts.left_out:
        known = ", ".join(sorted(facts.left_out)[:10])
        reasons.append(f"{facts.left_out.total()} rows are of other sources than {', '.join(sources)}: {known}")
    return CorpusError(f"nothing to train on in {len(files)} files ({'; '.join(reasons) or 'they are empty'})")
