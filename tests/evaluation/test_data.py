"""Reading data sets: what is right is read exactly, what is wrong is named with file, line and numbers."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lmk_embed.errors import ConfigError, LandmarkError
from lmk_embed.evaluation import Dataset, DatasetError, read_dataset

CORPUS = [
    {"_id": "a", "title": "Lease", "text": "The deposit is three months of rent."},
    {"_id": "b", "title": "", "text": "Ausklänge: Grüße 🌧 aus Köln."},
    {"_id": "blank", "text": ""},
]
QUERIES = [{"_id": "q1", "text": "How much?"}, {"_id": "q2", "text": "Woher?"}, {"_id": "nobody", "text": "x"}]
QRELS = "query-id\tcorpus-id\tscore\nq1\ta\t2\nq1\tb\t0\nq2\tb\t1\n"
SPANS = [
    {"query_id": "q1", "doc_id": "a", "spans": [[4, 11], [15, 27]]},
    {"query_id": "q1", "doc_id": "a", "spans": [[31, 36]]},
]


def jsonl(rows: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    base = tmp_path / "tiny"
    base.mkdir()
    (base / "corpus.jsonl").write_text(jsonl(CORPUS), encoding="utf-8")
    (base / "queries.jsonl").write_text(jsonl(QUERIES), encoding="utf-8")
    (base / "qrels.tsv").write_text(QRELS)
    (base / "spans.jsonl").write_text(jsonl(SPANS))
    return base


def test_everything_is_read(folder: Path) -> None:
    data = read_dataset(folder)
    assert data.name == "tiny"
    assert data.documents == {row["_id"]: row["text"] for row in CORPUS}, "titles are no part of the text"
    assert list(data.queries) == ["q1", "q2"], "nothing answers the third"
    assert data.qrels == {"q1": {"a": 2, "b": 0}, "q2": {"b": 1}}
    assert data.spans == {"q1": {"a": ((4, 11), (15, 27), (31, 36))}}
    assert [data.documents["a"][start:end] for start, end in data.spans["q1"]["a"]] == [
        "deposit",
        "three months",
        "rent.",
    ]


def test_compressed_files_crlf_blank_lines_and_a_mark_at_the_start_are_the_same(folder: Path) -> None:
    before = read_dataset(folder).content_hash
    for name in ("corpus.jsonl", "queries.jsonl", "spans.jsonl", "qrels.tsv"):
        content = (folder / name).read_text(encoding="utf-8").replace("\n", "\r\n\n")
        (folder / name).unlink()
        (folder / f"{name}.gz").write_bytes(gzip.compress(b"\xef\xbb\xbf" + content.encode()))
    assert read_dataset(folder).content_hash == before


def test_qrels_as_beir_publishes_them(folder: Path) -> None:
    (folder / "qrels").mkdir()
    (folder / "qrels.tsv").rename(folder / "qrels" / "test.tsv")
    assert read_dataset(folder).qrels["q2"] == {"b": 1}


def test_spans_are_optional(folder: Path) -> None:
    (folder / "spans.jsonl").unlink()
    assert read_dataset(folder).spans == {}


def test_hashes_follow_the_content(folder: Path) -> None:
    before = read_dataset(folder)
    (folder / "qrels.tsv").write_text(QRELS + "q2\ta\t1\n")
    after = read_dataset(folder)
    assert after.corpus_hash == before.corpus_hash and after.content_hash != before.content_hash
    (folder / "corpus.jsonl").write_text(jsonl(CORPUS).replace("three", "three "), encoding="utf-8")
    assert read_dataset(folder).corpus_hash != before.corpus_hash


def replace_line(name: str, number: int, text: str | bytes) -> Callable[[Path], object]:
    def change(base: Path) -> None:
        raw = text.encode() if isinstance(text, str) else text
        lines = (base / name).read_bytes().split(b"\n")
        lines[number - 1] = raw
        (base / name).write_bytes(b"\n".join(lines))

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (replace_line("corpus.jsonl", 2, "{nope"), r"corpus.jsonl, line 2: not valid JSON, .* at column 2"),
        (replace_line("corpus.jsonl", 2, "[1]"), r"corpus.jsonl, line 2: a JSON object is expected, .* list"),
        (replace_line("corpus.jsonl", 1, '{"id": "a"}'), r"line 1: no '_id'; the keys are 'id'"),
        (replace_line("corpus.jsonl", 1, '{"_id": "a", "title": "t"}'), r"line 1: no 'text'"),
        (replace_line("corpus.jsonl", 1, '{"_id": 7, "text": ""}'), r"line 1: '_id' must be a string, it is 7"),
        (replace_line("corpus.jsonl", 3, '{"_id": "a", "text": ""}'), r"line 3: the id 'a' has appeared before"),
        (replace_line("corpus.jsonl", 2, b'{"_id": "\xff"}'), r"line 2: not UTF-8, byte 9 is 0xff"),
        (replace_line("queries.jsonl", 2, '{"_id": "q", "text": null}'), r"queries.jsonl, line 2: 'text' .* None"),
        (replace_line("qrels.tsv", 1, "q1\ta\t1"), r"qrels.tsv, line 1: a header is expected"),
        (replace_line("qrels.tsv", 2, "q1 a 1"), r"qrels.tsv, line 2: 3 columns separated by tabs .* found 1"),
        (replace_line("qrels.tsv", 3, "q1\t0\ta\t1"), r"qrels.tsv, line 3: 3 columns .* found 4"),
        (replace_line("qrels.tsv", 2, "q1\ta\tyes"), r"qrels.tsv, line 2: the score .* whole number, it is 'yes'"),
        (replace_line("qrels.tsv", 2, "q1\ta\t0.5"), r"qrels.tsv, line 2: the score .* it is '0.5'"),
        (replace_line("qrels.tsv", 2, "q9\ta\t1"), r"qrels.tsv, line 2: query 'q9' is not among the 3"),
        (replace_line("qrels.tsv", 2, "q1\tz\t1"), r"qrels.tsv, line 2: document 'z' is not among the 3"),
        (replace_line("qrels.tsv", 3, "q1\ta\t1"), r"qrels.tsv, line 3: score 1, but the same pair has 2"),
        (
            replace_line("spans.jsonl", 1, '{"query_id": "q1", "doc_id": "a", "spans": [[4, 99]]}'),
            r"spans.jsonl, line 1: span \[4, 99\] must have 0 <= start < end <= 36",
        ),
        (
            replace_line("spans.jsonl", 1, '{"query_id": "q1", "doc_id": "a", "spans": [[9, 9]]}'),
            r"spans.jsonl, line 1: span \[9, 9\]",
        ),
        (
            replace_line("spans.jsonl", 1, '{"query_id": "q1", "doc_id": "a", "spans": [[1.5, 3]]}'),
            r"spans.jsonl, line 1: a span must be \[start, end\] in whole numbers, it is \[1.5, 3\]",
        ),
        (
            replace_line("spans.jsonl", 2, '{"query_id": "q1", "doc_id": "a", "spans": []}'),
            r"spans.jsonl, line 2: 'spans' must be a list of .* pairs",
        ),
        (
            replace_line("spans.jsonl", 2, '{"query_id": "q1", "doc_id": "zz", "spans": [[0, 1]]}'),
            r"spans.jsonl, line 2: document 'zz' is not among the 3",
        ),
        (
            replace_line("spans.jsonl", 2, '{"query_id": "qq", "doc_id": "a", "spans": [[0, 1]]}'),
            r"spans.jsonl, line 2: query 'qq'",
        ),
        (lambda base: (base / "qrels.tsv").unlink(), r"has no qrels.tsv or qrels/test.tsv"),
        (lambda base: (base / "corpus.jsonl").unlink(), r"has no corpus.jsonl"),
        (lambda base: (base / "queries.jsonl").write_text("\n"), r"queries.jsonl is empty"),
        (lambda base: (base / "spans.jsonl").write_text(""), None),
    ],
)
def test_what_is_wrong_is_named(folder: Path, change: Callable[[Path], object], message: str | None) -> None:
    change(folder)
    if message is None:
        assert read_dataset(folder).spans == {}
        return
    with pytest.raises(DatasetError, match=message):
        read_dataset(folder)


def test_nothing_relevant_at_all(folder: Path) -> None:
    (folder / "spans.jsonl").unlink()
    (folder / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\nq1\ta\t-1\n")
    with pytest.raises(DatasetError, match="nothing to measure"):
        read_dataset(folder)


def test_half_a_gzip_file(folder: Path) -> None:
    whole = gzip.compress((folder / "corpus.jsonl").read_bytes())
    (folder / "corpus.jsonl").unlink()
    (folder / "corpus.jsonl.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DatasetError, match="not a complete gzip file"):
        read_dataset(folder)
    (folder / "corpus.jsonl.gz").write_bytes(b"plain text")
    with pytest.raises(DatasetError, match="not a complete gzip file"):
        read_dataset(folder)


def test_no_folder(tmp_path: Path) -> None:
    with pytest.raises(LandmarkError, match="no data set folder"):
        read_dataset(tmp_path / "nope")


def test_samples() -> None:
    queries = {f"q{i}": f"text {i}" for i in range(50)}
    data = Dataset(
        "x", {"a": "text"}, queries, {q: {"a": 1} for q in queries}, {q: {"a": ((0, 1),)} for q in queries}
    )
    some = data.sample(10, seed=3)
    assert len(some.queries) == 10 and some.documents == data.documents
    assert set(some.queries) == set(some.qrels) == set(some.spans)
    assert list(some.queries) == [query for query in queries if query in some.queries]
    assert some.queries == data.sample(10, seed=3).queries != data.sample(10, seed=4).queries
    assert data.sample(50, seed=0) is data
    with pytest.raises(ConfigError, match="at least 1 query, got 0"):
        data.sample(0, seed=0)
