"""Retrieval sets on disk: BEIR's layout, with gold spans beside it where there are any.

A folder holds ``corpus.jsonl``, ``queries.jsonl``, ``qrels.tsv`` and optionally ``spans.jsonl``, each of them
plain or with ``.gz`` behind its name.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from lmk_embed.errors import ConfigError, LandmarkError

Spans = tuple[tuple[int, int], ...]

#: Where qrels may be: beside the corpus, or where the folders that BEIR publishes have them.
_QRELS = ("qrels.tsv", "qrels/test.tsv")


class DatasetError(LandmarkError, ValueError):
    """A data set cannot be read; the message names the file, the line and what is wrong with it."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """Documents, queries, and what answers them.

    Attributes
    ----------
    name : str
    documents : mapping of str to str
        Texts by id. A title is not part of the text: gold spans count characters of ``text`` alone.
    queries : mapping of str to str
        Texts by id; only those with a relevant document or a gold span.
    qrels : mapping of str to mapping of str to int
        Grades by query and document; above 0 is relevant.
    spans : mapping of str to mapping of str to tuple of (int, int)
        Gold characters by query and document; empty where the set has none.
    """

    name: str
    documents: Mapping[str, str]
    queries: Mapping[str, str]
    qrels: Mapping[str, Mapping[str, int]]
    spans: Mapping[str, Mapping[str, Spans]]

    @cached_property
    def corpus_hash(self) -> str:
        """Hex digest of the documents' ids and texts, in order."""
        return _digest((doc_id, text) for doc_id, text in self.documents.items())

    @cached_property
    def content_hash(self) -> str:
        """Hex digest of everything that scores depend on."""
        return _digest(
            [
                self.corpus_hash,
                *self.queries.items(),
                *((query, sorted(grades.items())) for query, grades in sorted(self.qrels.items())),
                *((query, sorted(gold.items())) for query, gold in sorted(self.spans.items())),
            ]
        )

    def sample(self, n_queries: int, seed: int) -> Dataset:
        """Keep a random part of the queries and all documents.

        Parameters
        ----------
        n_queries : int
            At least 1; a set with no more than that is returned as it is.
        seed : int

        Raises
        ------
        ConfigError
            If ``n_queries`` is below 1.
        """
        if n_queries < 1:
            raise ConfigError(f"a sample needs at least 1 query, got {n_queries}")
        if n_queries >= len(self.queries):
            return self
        chosen = np.random.default_rng(seed).choice(sorted(self.queries), n_queries, replace=False)
        keep = set(chosen.tolist())
        return replace(
            self,
            queries={query: text for query, text in self.queries.items() if query in keep},
            qrels={query: grades for query, grades in self.qrels.items() if query in keep},
            spans={query: gold for query, gold in self.spans.items() if query in keep},
        )


def _digest(values: Iterable[Any]) -> str:
    digest = hashlib.sha256()
    for value in values:
        digest.update(json.dumps(value).encode() + b"\n")
    return digest.hexdigest()


def read_dataset(folder: str | Path) -> Dataset:
    """Read a data set and check every line of it.

    Parameters
    ----------
    folder : str or Path
        Its name becomes the name of the set.

    Returns
    -------
    Dataset

    Raises
    ------
    DatasetError
        If a file is missing, or a line is malformed, names an unknown id, repeats an id, or has a span outside of
        its text.
    """
    base = Path(folder)
    documents = _texts(_required(base, "corpus.jsonl"))
    queries = _texts(_required(base, "queries.jsonl"))
    qrels = _read_qrels(_required(base, *_QRELS), documents, queries)
    spans_file = _found(base, "spans.jsonl")
    spans = _read_spans(spans_file, documents, queries) if spans_file else {}
    judged = {query for query, grades in qrels.items() if max(grades.values()) > 0} | set(spans)
    if not judged:
        raise DatasetError(f"{base} has no query with a relevant document, so there is nothing to measure")
    return Dataset(
        name=base.resolve().name,
        documents=documents,
        queries={query: text for query, text in queries.items() if query in judged},
        qrels=qrels,
        spans=spans,
    )


def _found(base: Path, *names: str) -> Path | None:
    candidates = (base / (name + suffix) for name in names for suffix in ("", ".gz"))
    return next((path for path in candidates if path.is_file()), None)


def _required(base: Path, *names: str) -> Path:
    if not base.is_dir():
        raise DatasetError(f"no data set folder at {base}")
    path = _found(base, *names)
    if path is None:
        raise DatasetError(
            f"{base} has no {' or '.join(names)} (nor .gz); "
            "a data set needs corpus.jsonl, queries.jsonl and qrels.tsv"
        )
    return path


def _lines(path: Path) -> Iterator[tuple[str, str]]:
    """Yield each line that is not blank, and "file, line n" to name it by."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as handle:
            for number, raw in enumerate(handle, start=1):
                where = f"{path}, line {number}"
                try:
                    line = raw.decode("utf-8-sig" if number == 1 else "utf-8")
                except UnicodeDecodeError as error:
                    raise DatasetError(
                        f"{where}: not UTF-8, byte {error.start} is {raw[error.start]:#04x}"
                    ) from error
                if line.strip():
                    yield where, line
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DatasetError(f"{path} is not a complete gzip file: {error}") from error


def _objects(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    for where, line in _lines(path):
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise DatasetError(f"{where}: not valid JSON, {error.msg} at column {error.colno}") from error
        if not isinstance(row, dict):
            raise DatasetError(f"{where}: a JSON object is expected, this is a {type(row).__name__}")
        yield where, row


def _text_field(row: dict[str, Any], name: str, where: str) -> str:
    if name not in row:
        raise DatasetError(f"{where}: no {name!r}; the keys are {', '.join(map(repr, row)) or 'none'}")
    value = row[name]
    if not isinstance(value, str):
        raise DatasetError(f"{where}: {name!r} must be a string, it is {value!r:.80}")
    return value


def _texts(path: Path) -> dict[str, str]:
    texts: dict[str, str] = {}
    for where, row in _objects(path):
        key, text = _text_field(row, "_id", where), _text_field(row, "text", where)
        if key in texts:
            raise DatasetError(f"{where}: the id {key!r} has appeared before")
        texts[key] = text
    if not texts:
        raise DatasetError(f"{path} is empty")
    return texts


def _known(key: str, texts: Mapping[str, str], kind: str, where: str) -> str:
    if key not in texts:
        raise DatasetError(f"{where}: {kind} {key!r} is not among the {len(texts)} that the data set has")
    return key


def _read_qrels(path: Path, documents: Mapping[str, str], queries: Mapping[str, str]) -> dict[str, dict[str, int]]:
    qrels: dict[str, dict[str, int]] = {}
    for number, (where, line) in enumerate(_lines(path)):
        cells = [cell.strip() for cell in line.split("\t")]
        if len(cells) != 3:
            raise DatasetError(
                f"{where}: 3 columns separated by tabs are expected (query-id, corpus-id, score), "
                f"found {len(cells)}"
            )
        if number == 0:
            if _grade(cells[2]) is not None:
                raise DatasetError(f"{where}: a header is expected, such as query-id, corpus-id, score")
            continue
        query = _known(cells[0], queries, "query", where)
        doc = _known(cells[1], documents, "document", where)
        grade = _grade(cells[2])
        if grade is None:
            raise DatasetError(f"{where}: the score must be a whole number, it is {cells[2]!r}")
        if qrels.setdefault(query, {}).setdefault(doc, grade) != grade:
            raise DatasetError(f"{where}: score {grade}, but the same pair has {qrels[query][doc]} further up")
    return qrels


def _grade(cell: str) -> int | None:
    try:
        value = float(cell)
    except ValueError:
        return None
    # trec_eval has no use for the negative grades by which some collections mark junk: not relevant either way.
    return max(int(value), 0) if value.is_integer() else None


def _read_spans(
    path: Path, documents: Mapping[str, str], queries: Mapping[str, str]
) -> dict[str, dict[str, Spans]]:
    spans: dict[str, dict[str, Spans]] = {}
    for where, row in _objects(path):
        query = _known(_text_field(row, "query_id", where), queries, "query", where)
        doc = _known(_text_field(row, "doc_id", where), documents, "document", where)
        found = _span_list(row.get("spans"), len(documents[doc]), where)
        gold = spans.setdefault(query, {})
        gold[doc] = gold.get(doc, ()) + found
    return spans


def _span_list(value: Any, length: int, where: str) -> Spans:
    if not isinstance(value, list) or not value:
        raise DatasetError(f"{where}: 'spans' must be a list of [start, end] pairs, it is {value!r:.80}")
    for pair in value:
        whole = isinstance(pair, list) and len(pair) == 2 and all(type(bound) is int for bound in pair)
        if not whole:
            raise DatasetError(f"{where}: a span must be [start, end] in whole numbers, it is {pair!r:.80}")
        start, end = pair
        if not 0 <= start < end <= length:
            raise DatasetError(
                f"{where}: span [{start}, {end}] must have 0 <= start < end <= {length}, the length of the text"
            )
    return tuple((start, end) for start, end in value)
