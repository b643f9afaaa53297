"""Bring a collection in line with files on disk: read what changed, skip what did not, report the rest."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tqdm import tqdm

from lmk_embed.errors import LandmarkError, MissingExtraError
from lmk_embed.files import NoSuchPathError, RawFile, SkippedFile, SourceText, load, walk
from lmk_embed.results import Document, DocumentEmbedding

if TYPE_CHECKING:
    from chroma_lmk import LandmarkStore


class NothingToIndexError(LandmarkError):
    """The paths hold no file that can be read."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Which files to index: paths, patterns as in ``.gitignore``, and an encoding for those that do not say."""

    roots: tuple[Path, ...]
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    encoding: str | None = None


@dataclass(slots=True)
class Found:
    """Files to read, and those that are none."""

    selection: Selection
    paths: list[Path] = field(default_factory=list)
    skipped: list[SkippedFile] = field(default_factory=list)
    missing: list[Path] = field(default_factory=list)

    def refuse(self) -> None:
        """Raise the error for a selection without a single file.

        Raises
        ------
        NothingToIndexError
        """
        roots = ", ".join(map(str, self.selection.roots))
        reasons = Counter(skip.reason for skip in self.skipped)
        seen = ", ".join(f"{count} {reason}" for reason, count in reasons.most_common())
        patterns = " Check --include and --exclude." if self.selection.include or self.selection.exclude else ""
        raise NothingToIndexError(
            f"nothing to index in {roots}: " + (f"files seen: {seen}." if seen else "no files there.") + patterns
        )


@dataclass(slots=True)
class IndexReport:
    """What one run did.

    Attributes
    ----------
    added, changed, unchanged, removed : int
        Documents.
    gone : int
        Documents whose files are no longer there, and that were kept for want of ``--prune``.
    chunks, tokens : int
        Written and encoded in this run.
    seconds : float
    skipped : list of SkippedFile
    blank : tuple of str
        Files without text.
    interrupted : bool
    """

    added: int = 0
    changed: int = 0
    unchanged: int = 0
    removed: int = 0
    gone: int = 0
    chunks: int = 0
    tokens: int = 0
    seconds: float = 0.0
    skipped: list[SkippedFile] = field(default_factory=list)
    blank: tuple[str, ...] = ()
    interrupted: bool = False


def find_files(selection: Selection, *, missing_ok: bool = False) -> Found:
    """Walk the paths; nothing is read yet.

    Parameters
    ----------
    selection : Selection
    missing_ok : bool
        Whether a path may be gone; :func:`index_files` then wants to know documents under it.

    Raises
    ------
    NoSuchPathError
        Naming every path that does not exist.
    """
    found = Found(selection)
    found.missing = [root for root in selection.roots if missing_ok and not os.path.lexists(root)]
    found.paths = list(
        walk(
            [root for root in selection.roots if root not in found.missing],
            include=selection.include,
            exclude=selection.exclude,
            on_skip=found.skipped.append,
        )
    )
    return found


def document_id(path: Path) -> str:
    """Return the id of a file's document: its absolute path, so that any run names it alike."""
    return Path(os.path.abspath(path)).as_posix()  # noqa: PTH100 - resolve() would follow links


def index_files(store: LandmarkStore, found: Found, *, prune: bool) -> IndexReport:
    """Index files into a store.

    Parameters
    ----------
    store : LandmarkStore
    found : Found
    prune : bool
        Whether to remove documents under the given paths whose files are no more.

    Returns
    -------
    IndexReport
    """
    started = time.monotonic()
    known = {document.id: document.metadata for document in store.documents()}
    for root in found.missing:
        if not any(Path(doc_id).is_relative_to(document_id(root)) for doc_id in known):
            raise NoSuchPathError(f"no such file or folder, and no document of one in the index: {root}")
    with tqdm(total=len(found.paths), unit="file", desc="indexing", leave=False, disable=None) as bar:
        # What a killed run has left half-cleaned is known, but has to be written again.
        intact = {doc_id: str(known[doc_id].get("sha256")) for doc_id in store.digests(known)}
        run = _Run(found, intact, bar)
        report = IndexReport(skipped=run.skipped)
        try:
            added = store.add(run.changed_documents(), on_encoded=run.encoded)
        except KeyboardInterrupt:
            report.interrupted = True
        else:
            report.added, report.changed, report.blank = added.added, added.replaced, added.blank
            report.chunks, report.tokens = added.chunks, added.tokens
            gone = [doc_id for doc_id in known if run.is_gone(doc_id)]
            if prune:
                store.delete(gone)
                report.removed = len(gone)
            else:
                report.gone = len(gone)
    report.unchanged = run.unchanged
    report.seconds = time.monotonic() - started
    return report


class _Run:
    """Reads files one by one and remembers which documents they stand for."""

    def __init__(self, found: Found, hashes: dict[str, str], bar: tqdm[Any]) -> None:
        self._found = found
        self._hashes = hashes
        self._bar = bar
        self._seen: set[str] = set()
        self._roots = [Path(document_id(root)) for root in found.selection.roots]
        self._tokens = 0
        self.unchanged = 0
        self.skipped = list(found.skipped)

    def changed_documents(self) -> Iterator[Document]:
        for path in self._found.paths:
            document = self._changed(path)
            if document is None:
                self._bar.update()
            else:
                yield document

    def _changed(self, path: Path) -> Document | None:
        doc_id = document_id(path)
        try:
            raw = load(path)
            if self._hashes.get(doc_id) == raw.digest:
                self._seen.add(doc_id)
                self.unchanged += 1
                return None
            source = self._parse(raw)
        except SkippedFile as skipped:
            self.skipped.append(skipped)
            return None
        self._seen.add(doc_id)
        return Document(doc_id, source.text, file_metadata(source, doc_id))

    def _parse(self, raw: RawFile) -> SourceText:
        try:
            return raw.parse(fallback_encoding=self._found.selection.encoding)
        except MissingExtraError as error:
            raise SkippedFile(raw.path, "unsupported", str(error)) from error

    def encoded(self, embedding: DocumentEmbedding) -> None:
        """Move the progress bar: by documents that are encoded, not by files that are read ahead."""
        self._tokens += embedding.n_tokens
        self._bar.set_postfix(tokens=f"{self._tokens:,}", refresh=False)
        self._bar.update()

    def is_gone(self, doc_id: str) -> bool:
        """Whether a known document lies under the given paths, and its file is no more."""
        path = Path(doc_id)
        inside = any(path.is_relative_to(root) for root in self._roots)
        return inside and doc_id not in self._seen and not path.is_file()


def file_metadata(source: SourceText, doc_id: str) -> dict[str, str]:
    """Return what a document remembers of its file; searches can filter by each key."""
    metadata = {
        "path": doc_id,
        "name": source.path.name,
        "suffix": source.path.suffix,
        "kind": source.kind,
        "sha256": source.digest,
    }
    if source.encoding is not None:
        metadata["encoding"] = source.encoding
    return metadata
