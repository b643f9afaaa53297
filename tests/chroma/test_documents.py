"""Adding, replacing, giving back, counting and deleting documents, on an embedded database and on a server."""

from collections.abc import Iterator

import numpy as np
import pytest
from chroma_fakes import FakeEncoder, sample_text
from hypothesis import given, settings
from hypothesis import strategies as st

from chroma_lmk import (
    DocumentError,
    DuplicateIdError,
    LandmarkStore,
    StoreError,
    document_digest,
)
from lmk_embed.results import Document

WORDS = 8  # words a chunk of the fake encoder


def rows(store: LandmarkStore) -> dict[str, tuple]:
    """All rows as Chroma holds them: text, metadata and rounded vector by id."""
    if store.collection is None:
        return {}
    found = store.collection.get(include=["documents", "metadatas", "embeddings"])
    return {
        row: (text, metadata, tuple(np.round(vector, 5)))
        for row, text, metadata, vector in zip(
            found["ids"], found["documents"], found["metadatas"], found["embeddings"], strict=True
        )
    }


def words(count: int, topic: str = "w") -> str:
    return " ".join(f"{topic}{number}" for number in range(count))


def test_documents_come_back_exactly_in_the_order_asked(store: LandmarkStore) -> None:
    documents = [
        Document(f"doc {number}", sample_text(number, 5 + 9 * number), {"n": number}) for number in range(12)
    ]
    report = store.add(documents)
    assert (report.added, report.documents, report.chunks) == (12, 12, store.count())
    order = [documents[number] for number in (7, 0, 11, 3)]
    assert store.get(["doc 7", "doc 0", "missing", "doc 11", "doc 3"]) == order
    assert store.get([]) == []


@pytest.mark.parametrize(
    "text", ["\n\n  A b  \n", "a\0b \r\n c", "🙂 ünï 東京\u2028x", "(((one)))", "x", "tail " * 9 + "…" * 50_000]
)
def test_text_outside_the_chunks_is_kept(store: LandmarkStore, text: str) -> None:
    store.add([Document("d", text)])
    assert store.get(["d"])[0].text == text


def test_the_end_of_a_truncated_document_is_kept(local_store: LandmarkStore, encoder: FakeEncoder) -> None:
    encoder.max_words = 10
    text = words(50)
    report = local_store.add([Document("d", text)])
    assert report.truncated == ("d",)
    assert local_store.get(["d"])[0].text == text


def test_a_row_holds_the_characters_of_its_span(store: LandmarkStore) -> None:
    text = sample_text(1, 100)
    store.add([Document("d", text)])
    for row, (chunk, metadata, _) in rows(store).items():
        assert row == f"d#{metadata['lmk:chunk']}"
        assert text[metadata["lmk:start"] : metadata["lmk:end"]] == chunk


def test_case_24_replacing_leaves_exactly_the_new_rows(store: LandmarkStore) -> None:
    store.add([Document("d", words(5 * WORDS), {"x": 1, "y": 2, "z": None}), Document("other", words(10))])
    report = store.add([Document("d", words(3 * WORDS, "new"), {"x": 3})])
    assert (report.added, report.replaced) == (0, 1)
    assert sorted(row for row in rows(store) if row.startswith("d#")) == ["d#0", "d#1", "d#2"]
    assert store.get(["d"]) == [Document("d", words(3 * WORDS, "new"), {"x": 3})]
    assert all("y" not in metadata for _, metadata, _ in rows(store).values())
    assert "new5" in store.search("new5", k=1)[0].text


def test_replacing_equals_adding_afresh(store: LandmarkStore, collection: str, encoder: FakeEncoder) -> None:
    history = [(5, {"a": 1}), (5, {"b": [1]}), (2, {"a": "x"}), (9, {}), (1, {"c": None}), (4, {"b": {"q": 1}})]
    for size, metadata in history:
        store.add([Document("d", sample_text(size, size * WORDS), metadata)])
    replaced = rows(store)
    store.delete(["d"])
    store.add([Document("d", sample_text(size, size * WORDS), metadata)])
    assert replaced == rows(store)


def test_case_24_many_rows_are_written_in_pieces_and_embedded_once(
    store: LandmarkStore, encoder: FakeEncoder
) -> None:
    long = words(6_000 * WORDS)
    store.add([Document("long", long), Document("short", words(20, "short"))])
    assert encoder.embedded == [long, words(20, "short")]
    assert store.count() == 6_003
    last = long[-8 * 7 + 1 :]
    assert [(hit.text, hit.end) for hit in store.search(last, k=1)] == [(last, len(long))]
    assert store.get(["long"])[0].text == long
    assert store.delete(["long"]) == 6_000
    assert store.count() == 3


def test_case_24_the_same_id_twice_is_refused_before_embedding(store: LandmarkStore, encoder: FakeEncoder) -> None:
    documents = [Document("a", "one"), Document("b", "two"), Document("a", "three")]
    with pytest.raises(DuplicateIdError, match="'a' came twice"):
        store.add(documents)
    assert encoder.embedded == []
    assert store.count() == 0


def test_case_26_delete_tells_how_many_rows_there_were(store: LandmarkStore) -> None:
    store.add([Document("five", words(5 * WORDS)), Document("one", "x")])
    assert store.delete(["five"]) == 5
    assert store.delete(["five"]) == 0
    assert store.delete(["unknown"]) == 0
    assert store.delete([]) == 0
    assert list(rows(store)) == ["one#0"]
    with pytest.raises(TypeError, match="string 'one'"):
        store.delete("one")


def test_count_per_chunk_and_per_document(store: LandmarkStore) -> None:
    assert (store.count(), store.count("document")) == (0, 0)
    store.add([Document("a", words(3 * WORDS)), Document("b", words(2))])
    assert (store.count(), store.count("document")) == (4, 2)


def test_blank_documents_make_no_rows_and_replace_what_was_there(store: LandmarkStore) -> None:
    assert store.add([Document("a", ""), Document("b", " \n")]).blank == ("a", "b")
    assert store.count() == 0
    store.add([Document("a", words(20))])
    report = store.add([Document("a", "  ")])
    assert (report.blank, report.added, report.replaced) == (("a",), 0, 0)
    assert store.count() == 0
    assert store.get(["a"]) == []


def test_adding_nothing_makes_nothing(store: LandmarkStore, encoder: FakeEncoder) -> None:
    assert store.add([]).documents == 0
    assert store.add(iter([])).documents == 0
    assert store.collection is None


def test_unchanged_documents_are_skipped_on_request(store: LandmarkStore, encoder: FakeEncoder) -> None:
    documents = [Document("a", words(20), {"v": 1}), Document("b", words(20), {"v": 1})]
    store.add(documents)
    encoder.embedded.clear()
    changed = [documents[0], Document("b", words(20), {"v": 1.0}), Document("c", "new")]
    report = store.add(changed, skip_unchanged=True)
    assert (report.unchanged, report.replaced, report.added) == (1, 1, 1)
    assert encoder.embedded == [words(20), "new"]
    assert store.digests(["a", "b", "nope"]) == {d.id: document_digest(d) for d in changed[:2]}


def test_documents_lists_what_is_stored(store: LandmarkStore) -> None:
    documents = [Document(f"d{n}", words(n * WORDS), {"n": n, "none": None}) for n in range(1, 8)]
    store.add(documents)
    listed = {info.id: info for info in store.documents()}
    assert set(listed) == {document.id for document in documents}
    assert listed["d3"].metadata == {"n": 3, "none": None}
    assert listed["d3"].chunks == 3
    assert listed["d3"].digest == document_digest(documents[2])


def test_a_stream_is_read_as_it_is_embedded(local_store: LandmarkStore, encoder: FakeEncoder) -> None:
    furthest = 0

    def stream() -> Iterator[Document]:
        nonlocal furthest
        for number in range(500):
            furthest = max(furthest, number - len(encoder.embedded))
            yield Document(f"d{number}", words(3, f"t{number}x"))

    assert local_store.add(stream()).added == 500
    assert len(encoder.embedded) == 500
    assert furthest <= 64


def test_a_bad_document_in_a_stream_keeps_those_before_its_batch(
    local_store: LandmarkStore, encoder: FakeEncoder
) -> None:
    stream = (Document(f"d{n}", words(5) if n != 100 else None) for n in range(200))
    with pytest.raises(DocumentError, match=r"'d100'.*NoneType"):
        local_store.add(stream)
    assert len(encoder.embedded) == 64
    assert local_store.count("document") == 64


def test_what_the_encoder_finished_before_it_failed_is_stored(local_store: LandmarkStore) -> None:
    def stream() -> Iterator[Document]:
        yield from (Document(f"d{n}", words(5)) for n in range(64))
        raise OSError("the drive is gone")

    with pytest.raises(OSError, match="drive is gone"):
        local_store.add(stream())
    assert local_store.count("document") == 64


@pytest.mark.parametrize(
    ("document", "error", "message"),
    [
        (Document("", "x"), DocumentError, "non-empty string"),
        (Document(3, "x"), DocumentError, "got 3"),
        (Document("a\ud800", "x"), DocumentError, "surrogates"),
        (Document("a", b"x"), DocumentError, "bytes"),
        (Document("a", "x\udcff"), DocumentError, "lone surrogate"),
        ("a text", TypeError, "got str"),
        (None, TypeError, "got NoneType"),
    ],
)
def test_documents_that_cannot_be_stored_are_refused_before_embedding(
    local_store: LandmarkStore, encoder: FakeEncoder, document: Document, error: type, message: str
) -> None:
    with pytest.raises(error, match=message):
        local_store.add([Document("fine", "text"), document])
    assert encoder.embedded == []


@pytest.mark.parametrize("documents", [Document("a", "x"), "text", {"id": "a"}])
def test_a_single_document_is_not_an_iterable_of_documents(local_store: LandmarkStore, documents: object) -> None:
    with pytest.raises(TypeError, match="iterable of Document"):
        local_store.add(documents)


def test_an_encoder_with_wrong_spans_is_caught(local_store: LandmarkStore, encoder: FakeEncoder) -> None:
    right = encoder.encode_document

    def wrong(text: str) -> object:
        return right(text.replace("ü", "ue"))

    encoder.encode_document = wrong
    with pytest.raises(StoreError, match="another text"):
        local_store.add([Document("d", "über")])
    assert local_store.count() == 0


ids = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)
texts = st.text(st.characters(codec="utf-8"), max_size=300) | st.builds(
    sample_text, st.integers(0, 999), st.integers(0, 60)
)


@settings(max_examples=20, deadline=None)
@given(st.dictionaries(ids, texts, min_size=1, max_size=6), st.data())
def test_get_gives_any_text_back(
    shared_store: LandmarkStore, contents: dict[str, str], data: st.DataObject
) -> None:
    shared_store.delete(contents)
    documents = [Document(key, text) for key, text in contents.items()]
    blank = set(shared_store.add(documents).blank)
    kept = [document for document in documents if document.id not in blank]
    assert shared_store.get(contents) == kept
    # Again with other texts of other lengths over them.
    changed = [Document(document.id, data.draw(texts)) for document in documents]
    blank = set(shared_store.add(changed).blank)
    assert shared_store.get(contents) == [document for document in changed if document.id not in blank]
    assert shared_store.verify().ok
