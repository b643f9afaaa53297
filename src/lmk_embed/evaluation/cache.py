"""Vectors on disk, so that a run that was stopped goes on where it was, and a second report costs no encoding.

A corpus is encoded in groups of documents; each group is one file, written completely or not at all. A file that
cannot be read back is computed again.
"""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np

from lmk_embed.evaluation.data import Dataset
from lmk_embed.evaluation.embedders import Embedder
from lmk_embed.evaluation.vectors import CorpusVectors
from lmk_embed.results import Matrix

#: Characters of a group: about what two CPU cores encode in half a minute with a model of 22 M parameters.
GROUP = 100_000
#: Bumped when files from before would be read wrongly.
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class VectorCache:
    """A folder of vectors, keyed by the content that was encoded and by everything that changes vectors.

    Attributes
    ----------
    folder : Path or None
        Created when something is stored; None: nothing is.
    """

    folder: Path | None

    def corpus(self, dataset: Dataset, embedder: Embedder, progress: Callable[[int], object]) -> CorpusVectors:
        """Return the vectors of a corpus, encoding what is not stored yet.

        Parameters
        ----------
        dataset : Dataset
        embedder : Embedder
        progress : callable
            Told the number of characters whenever some are done.
        """
        place = self._place(dataset, embedder)
        parts = []
        for index, texts in enumerate(groups(list(dataset.documents.values()))):
            path = place and place / f"documents-{index:05}.npz"
            part = _load(path, len(texts)) if path else None
            if part is None:
                part = embedder.encode_documents(texts)
                if path:
                    _store(path, {field.name: getattr(part, field.name) for field in fields(part)})
            parts.append(part)
            progress(sum(map(len, texts)))
        return CorpusVectors.joined(parts)

    def queries(self, dataset: Dataset, embedder: Embedder) -> Matrix:
        """Return the vectors of the queries, encoding them if they are not stored yet."""
        texts = list(dataset.queries.values())
        place = self._place(dataset, embedder)
        if place is None:
            return embedder.encode_queries(texts)
        path = place / f"queries-{_digest(texts)}.npz"
        arrays = _read(path, ["vectors"])
        if arrays is not None and arrays["vectors"].shape[:1] == (len(texts),):
            return np.asarray(arrays["vectors"])
        vectors = embedder.encode_queries(texts)
        _store(path, {"vectors": vectors})
        return vectors

    def _place(self, dataset: Dataset, embedder: Embedder) -> Path | None:
        if self.folder is None:
            return None
        content = f"{_slug(dataset.name)}-{dataset.corpus_hash[:16]}"
        return self.folder / content / f"{_slug(embedder.name)}-{_digest([_FORMAT, GROUP, embedder.key])}"


def groups(texts: Sequence[str]) -> Iterator[list[str]]:
    """Divide a corpus into groups of consecutive documents, each closed when it has :data:`GROUP` characters.

    Examples
    --------
    >>> [len(group) for group in groups(["x" * 60_000, "y" * 60_000, "z"])]
    [2, 1]
    """
    group: list[str] = []
    size = 0
    for text in texts:
        group.append(text)
        size += len(text)
        if size >= GROUP:
            yield group
            group, size = [], 0
    if group:
        yield group


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def _slug(name: str) -> str:
    """Return a name that every file system takes; what tells entries apart is the digest behind it."""
    return "".join(c if c.isascii() and (c.isalnum() or c in "-_") else "_" for c in name)[:60]


def _load(path: Path, n_documents: int) -> CorpusVectors | None:
    arrays = _read(path, [field.name for field in fields(CorpusVectors)])
    if arrays is None:
        return None
    n_chunks = int(arrays["counts"].sum())
    whole = (
        len(arrays["counts"]) == len(arrays["documents"]) == len(arrays["cut"]) == n_documents
        and len(arrays["chunks"]) == len(arrays["spans"]) == n_chunks
    )
    if not whole:
        return None
    return CorpusVectors(
        arrays["counts"],
        arrays["spans"],
        arrays["chunks"],
        arrays["documents"],
        arrays["cut"],
        float(arrays["seconds"]),
    )


def _read(path: Path, names: Sequence[str]) -> dict[str, Any] | None:
    """Read arrays; None if the file is absent or damaged, which the checksums of a zip archive tell."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in names}
    except (OSError, ValueError, KeyError, EOFError, TypeError, zipfile.BadZipFile, zlib.error):
        return None


def _store(path: Path, arrays: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f".{path.name}-{uuid4().hex}")
    try:
        with scratch.open("wb") as handle:
            np.savez(handle, allow_pickle=False, **arrays)
            handle.flush()
            os.fsync(handle.fileno())
        scratch.replace(path)
    finally:
        scratch.unlink(missing_ok=True)
