"""Training text is read completely, and what cannot be used is counted and named."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from lmk_embed.training import CorpusError, read_corpus


def write_rows(path: Path, *rows: object) -> Path:
    text = "".join(json.dumps(row) + "\n" for row in rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def test_all_kinds_of_files_are_read(tmp_path: Path) -> None:
    write_rows(tmp_path / "in" / "a.jsonl", {"text": "one", "source": "x"}, {"text": "zwei é 東京", "source": "y"})
    write_rows(tmp_path / "in" / "deep" / "b.jsonl.gz", {"text": "three\r\n"})
    (tmp_path / "note.md").write_text("# four", encoding="utf-8-sig")
    corpus = read_corpus([tmp_path / "in", tmp_path / "note.md"], tmp_path / "cache")
    assert corpus.texts[:] == ["one", "zwei é 東京", "three\r\n", "# four"]
    assert corpus.texts[1] == "zwei é 東京"
    assert corpus.lengths.tolist() == [3, 9, 7, 6]
    assert len(corpus) == len(corpus.texts) == 4
    assert corpus.facts.sources == {"x": 1, "y": 1, "deep/b.jsonl.gz": 1, "note.md": 1}
    assert corpus.facts.characters == 25


def test_a_folder_of_rows_is_read_without_the_explanations_beside_them(tmp_path: Path) -> None:
    write_rows(tmp_path / "part.jsonl", {"text": "row"})
    (tmp_path / "README.md").write_text("about the rows")
    assert read_corpus([tmp_path], tmp_path / "cache").texts[:] == ["row"]


def test_a_folder_of_plain_texts_is_read_file_by_file(tmp_path: Path) -> None:
    for name in ("b.txt", "a.md", "skipped.csv"):
        (tmp_path / name).write_text(name)
    assert read_corpus([tmp_path], tmp_path / "cache").texts[:] == ["a.md", "b.txt"]


def test_sources_are_chosen_by_pattern(tmp_path: Path) -> None:
    file = write_rows(
        tmp_path / "a.jsonl", *({"text": name, "source": name} for name in ("doc-en", "doc-de", "law"))
    )
    corpus = read_corpus([file], tmp_path / "cache", sources=("doc-*",))
    assert corpus.texts[:] == ["doc-en", "doc-de"]
    assert corpus.facts.left_out == {"law": 1}


def test_questions_may_stand_under_another_name(tmp_path: Path) -> None:
    file = write_rows(tmp_path / "a.jsonl", {"query": "why?", "positive": "because"}, {"_id": "1", "text": "how?"})
    assert read_corpus([file], tmp_path / "cache", field_names=("query", "text")).texts[:] == ["why?", "how?"]


def test_bad_rows_are_counted_and_named(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_bytes(b'{"text": "good"}\n\n{"text": \n{"text": 3}\n["text"]\n{"text": " \\n"}\n\xff\xfe\n')
    (tmp_path / "latin.txt").write_bytes("Köln".encode("latin-1"))
    (tmp_path / "empty.txt").write_bytes(b"")
    paths = [file, tmp_path / "latin.txt", tmp_path / "empty.txt"]
    facts = read_corpus(paths, tmp_path / "cache").facts
    assert facts.sources == {"a.jsonl": 1}
    assert facts.problems["not a JSON value in UTF-8"] == 2
    assert facts.problems["no text under 'text'"] == 1
    assert facts.problems["not a JSON object"] == 1
    assert facts.problems["the text is blank"] == 2
    assert facts.problems.total() == 7
    assert facts.examples[0] == f"{file}, line 3: not a JSON value in UTF-8"


def test_a_file_that_was_cut_off_gives_what_it_has(tmp_path: Path) -> None:
    file = write_rows(tmp_path / "a.jsonl.gz", *({"text": f"{n} " * 500} for n in range(200)))
    file.write_bytes(file.read_bytes()[:-200])
    facts = read_corpus([file], tmp_path / "cache").facts
    assert 0 < facts.sources["a.jsonl.gz"] <= 200
    (example,) = facts.examples
    assert "cannot be read to its end" in example


def test_lone_surrogates_become_characters_that_can_be_stored(tmp_path: Path) -> None:
    file = write_rows(tmp_path / "a.jsonl", {"text": "bad \ud800 half"})
    assert read_corpus([file], tmp_path / "cache").texts[0] == "bad \ufffd half"


@pytest.mark.parametrize(
    ("rows", "sources", "message"),
    [
        ((), (), "nothing to train on in 1 files .they are empty"),
        (({"text": ""},), (), "1 rows: the text is blank"),
        (({"text": "a", "source": "x"},), ("y",), "1 rows are of other sources than y: x"),
    ],
)
def test_nothing_to_train_on_is_an_error_with_the_reason(
    tmp_path: Path, rows: tuple[object, ...], sources: tuple[str, ...], message: str
) -> None:
    file = write_rows(tmp_path / "a.jsonl", *rows)
    with pytest.raises(CorpusError, match=message):
        read_corpus([file], tmp_path / "cache", sources=sources)


def test_paths_without_text_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="no such file or folder"):
        read_corpus([tmp_path / "absent"], tmp_path / "cache")
    (tmp_path / "in").mkdir()
    with pytest.raises(CorpusError, match=r"expected files that end in \.jsonl"):
        read_corpus([tmp_path / "in"], tmp_path / "cache")


def test_a_second_reading_replaces_the_first(tmp_path: Path) -> None:
    file = write_rows(tmp_path / "a.jsonl", {"text": "one"})
    first = read_corpus([file], tmp_path / "cache")
    write_rows(file, {"text": "two"}, {"text": "three"})
    assert read_corpus([file], tmp_path / "cache").texts[:] == ["two", "three"]
    assert first.texts[:] == ["one"]
