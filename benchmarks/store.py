"""The store against Chroma itself: the same rows written and searched, both sides in turn, in one run.

python benchmarks/store.py                 # 200,000 rows
python benchmarks/store.py --rows 20000    # a quick look

Vectors are made beforehand, so the time is that of storing and finding, without a model. Chroma's side gets rows
that are ready, with all metadata the store adds, and the same index settings; it writes as many in a call as it
takes. Each side has a database of its own; pieces of the rows, and then queries, alternate between the two, and
which one goes first alternates, too.

Each kind of search is compared with the same call: ``collection.query(query_embeddings=[vector], n_results=10,
include=["documents", "metadatas", "distances"])``, with the same vector. That is what one does to get ten rows to
show; it does not give ten documents or passages. The queries are stored chunks with noise, and the 20 chunks of a
document are alike, so that one document owns the best 20 rows: ten documents are not among the first ten rows.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import chromadb
import numpy as np

from chroma_lmk import LandmarkStore, document_digest
from chroma_lmk.rows import Row, document_rows
from lmk_embed.results import Document, DocumentEmbedding, Matrix, Vector, make_chunk, unit

DIMENSION = 384
CHUNKS = 20  # of a document
TOKENS = 60  # of a chunk
K = 10
GOALS = {"ingest": 1.05, "chunk": 1.2, "document": 1.5}
WORDS = (
    "rent repair notice deposit clause water heating invoice payment court valve pump pressure oil filter torque"
)


@dataclass
class Ready:
    """An encoder whose answers were computed before."""

    answers: dict[str, DocumentEmbedding] = field(default_factory=dict, repr=False)
    fingerprint: str = "benchmark"
    dimension: int = DIMENSION

    def encode_documents(self, texts: Iterable[str]) -> Iterator[DocumentEmbedding]:
        """Look the answers up."""
        for text in texts:
            yield self.answers[text]

    def encode_queries(self, texts: list[str]) -> Matrix:
        """Refuse: queries are vectors here."""
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        """Nothing to remember."""
        return {}


@dataclass
class Piece:
    """Some documents, and the same as rows for Chroma."""

    documents: list[Document]
    rows: list[Row]


def make_piece(rng: np.random.Generator, first: int, rows: int, encoder: Ready) -> Piece:
    """Make documents of related chunks; the encoder learns their vectors."""
    piece = Piece([], [])
    for number in range(first, first + rows // CHUNKS):
        states = rng.standard_normal(DIMENSION) + rng.standard_normal((CHUNKS, DIMENSION))
        words = rng.choice(WORDS.split(), (CHUNKS, TOKENS))
        texts = [f"{number}.{chunk} {' '.join(each)}." for chunk, each in enumerate(words)]
        text, chunks, start = " ".join(texts), [], 0
        for index, (content, state) in enumerate(zip(texts, states.astype(np.float32), strict=True)):
            chunks.append(make_chunk(index, (start, start + len(content)), TOKENS, content, state))
            start += len(content) + 1
        embedding = DocumentEmbedding(
            text, unit(states.mean(axis=0)), tuple(chunks), CHUNKS * TOKENS, CHUNKS * TOKENS
        )
        metadata = {"source": f"files/{number}.txt", "year": 2000 + number % 26, "tags": ["a", f"t{number % 7}"]}
        document = Document(f"doc-{number}", text, metadata)
        encoder.answers[text] = embedding
        piece.documents.append(document)
        piece.rows += document_rows(document.id, embedding, metadata, document_digest(document), large=False)
    return piece


def upsert(collection: chromadb.Collection, rows: list[Row], limit: int) -> None:
    """Write rows as one does without the store."""
    for first in range(0, len(rows), limit):
        some = rows[first : first + limit]
        collection.upsert(
            ids=[row.id for row in some],
            embeddings=np.stack([row.vector for row in some]),
            documents=[row.text for row in some],
            metadatas=[row.metadata for row in some],
        )


def seconds(work: Callable[[], object]) -> float:
    """Time one call."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def in_turn(round_: int, one: Callable[[], object], other: Callable[[], object]) -> tuple[float, float]:
    """Time two calls; which one goes first depends on the round."""
    if round_ % 2:
        second = seconds(other)
        return seconds(one), second
    return seconds(one), seconds(other)


def ingest(store: LandmarkStore, raw: chromadb.Collection, encoder: Ready, rows: int, limit: int) -> list[str]:
    """Write everything to both sides; return lines of the table."""
    rng = np.random.default_rng(1)
    size = max(CHUNKS, min(10_000, rows // 10)) // CHUNKS * CHUNKS
    times: list[tuple[float, float]] = []
    written = 0
    while written < rows:
        piece = make_piece(rng, written // CHUNKS, min(size, rows - written), encoder)
        times.append(
            in_turn(
                len(times),
                lambda piece=piece: store.add(piece.documents),  # type: ignore[misc]
                lambda piece=piece: upsert(raw, piece.rows, limit),  # type: ignore[misc]
            )
        )
        written += len(piece.rows)
        encoder.answers.clear()
        sys.stderr.write(f"\r{written:,} rows")
    sys.stderr.write("\n")
    assert store.count() == raw.count() == written
    mine, theirs = (sum(side) for side in zip(*times, strict=True))
    return [line("ingest, rows/s", written / mine, written / theirs, mine / theirs, "{:,.0f}", GOALS["ingest"])]


def searches(store: LandmarkStore, raw: chromadb.Collection, count: int) -> list[str]:
    """Run each kind of search on both sides; return lines of the table."""
    rng = np.random.default_rng(2)
    found = raw.get(limit=count, offset=max(0, raw.count() // 2 - count), include=["embeddings"])
    known = np.asarray(found["embeddings"], dtype=np.float32)
    noise = rng.standard_normal(known.shape) * 0.5 / np.sqrt(DIMENSION)
    queries = unit(known + noise.astype(np.float32))
    kinds: dict[str, dict[str, Any]] = {
        "chunk": {"per": "chunk"},
        "document": {"per": "document"},
        "passage": {"per": "passage"},
        "chunk, max_tokens=240": {"per": "chunk", "max_tokens": 240},
    }
    lines = []
    for name, settings in kinds.items():

        def mine(query: Vector, settings: dict[str, Any] = settings) -> object:
            return store.search(query, K, **settings)

        def theirs(query: Vector) -> object:
            return raw.query(
                query_embeddings=query[None, :], n_results=K, include=["documents", "metadatas", "distances"]
            )

        for query in queries[:20]:
            mine(query), theirs(query)
        times = np.asarray(
            [
                in_turn(number, lambda query=query: mine(query), lambda query=query: theirs(query))  # type: ignore[misc]
                for number, query in enumerate(queries)
            ]
        )
        for share in (50, 95):
            left, right = np.percentile(times, share, axis=0) * 1_000
            goal = GOALS.get(name) if share == 95 else None
            lines.append(line(f"search per {name}, p{share} ms", left, right, left / right, "{:.2f}", goal))
    return lines


def line(name: str, mine: float, theirs: float, ratio: float, form: str, goal: float | None) -> str:
    """Make a line of the table; the ratio is that of the times."""
    wanted = f"≤ {goal:.2f}" if goal else ""
    return f"| {name} | {form.format(mine)} | {form.format(theirs)} | {ratio:.2f} | {wanted} |"


def main() -> None:
    """Run the comparison and print it as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=200_000, help="rows to write (default: 200,000)")
    parser.add_argument("--queries", type=int, default=400, help="searches of each kind (default: 400)")
    parser.add_argument("--directory", type=Path, help="where the two databases go while it runs")
    arguments = parser.parse_args()
    rows = max(1, arguments.rows // CHUNKS) * CHUNKS
    with tempfile.TemporaryDirectory(dir=arguments.directory) as folder:
        encoder = Ready()
        with LandmarkStore(Path(folder) / "store", "lmk", encoder) as store:
            store.add([make_piece(np.random.default_rng(0), 0, CHUNKS, encoder).documents[0]])
            made = store.collection
            assert made is not None
            hnsw = made.configuration_json["hnsw"]
            client = chromadb.PersistentClient(str(Path(folder) / "raw"))
            raw = client.create_collection(
                "raw",
                configuration={"hnsw": {"space": hnsw["space"], "sync_threshold": hnsw["sync_threshold"]}},
                embedding_function=None,
            )
            store.delete(["doc-0"])
            lines = ingest(store, raw, encoder, rows, client.get_max_batch_size())
            lines += searches(store, raw, min(arguments.queries, rows))
    print(f"{rows:,} rows of {DIMENSION} numbers, {rows // CHUNKS:,} documents, k = {K};")
    print(f"chromadb {chromadb.__version__}, Python {platform.python_version()}, {os.cpu_count()} cores\n")
    print("| | LandmarkStore | Chroma itself | ratio of times | goal |\n| --- | ---: | ---: | ---: | ---: |")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
