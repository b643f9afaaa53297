"""A writer that stops at any instant leaves nothing wrong to read, and the next run puts everything right."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import chromadb
import numpy as np
import pytest
from chroma_fakes import FakeEncoder, sample_text

from chroma_lmk import LandmarkStore
from chroma_lmk.chroma_files import ChromaFiles
from chroma_lmk.index_backup import IndexBackup
from chroma_lmk.session import Session
from lmk_embed.results import Document

LIMIT = 4  # rows a call, so that documents of more than four chunks take several
CHUNK = 8
CHILD = Path(__file__).with_name("crash_child.py")


class Stopped(BaseException):
    """The process is gone."""


def text(version: str, chunks: int) -> str:
    return " ".join(f"{version}{number}" for number in range(chunks * CHUNK))


def rows(store: LandmarkStore) -> dict[str, tuple]:
    """All rows of chunks, and under other keys those of the document vectors."""
    opened = store._session.find()
    collections = {"": opened, "vector ": opened.vectors} if opened else {}
    return {
        prefix + row: rest
        for prefix, each in collections.items()
        if each is not None
        for found in [each.collection.get(include=["documents", "metadatas", "embeddings"])]
        for row, *rest in zip(
            found["ids"],
            found["documents"],
            found["metadatas"],
            np.round(found["embeddings"], 5).tolist(),
            strict=True,
        )
    }


def stop_after(store: LandmarkStore, calls: int) -> None:
    """Let a store make so many changes, then none."""
    allow = store._session.access.changing
    left = calls

    @contextmanager
    def changing(*arguments: object) -> Iterator[None]:
        nonlocal left
        left -= 1
        if left < 0:
            raise Stopped
        with allow(*arguments):
            yield

    store._session.access.changing = changing


OLD = {"old": 1, "both": "o", "list": [1]}
NEW = {"new": 2, "both": "n"}
CHANGES = {
    "fresh small": (0, 3),
    "fresh large": (0, 9),
    "shorter": (4, 1),
    "longer": (1, 4),
    "same length": (3, 3),
    "only vector": (1, 1),
    "small to large": (3, 9),
    "large to small": (9, 3),
    "large to shorter": (9, 6),
    "large to longer": (5, 9),
    "blank small": (3, 0),
    "blank large": (9, 0),
}


VECTORS = ("fresh small", "shorter", "only vector", "small to large", "blank small")


@pytest.mark.parametrize("recover", ["add", "add unchanged", "add old", "repair", "delete"])
@pytest.mark.parametrize(
    ("change", "vectors"), [*((each, False) for each in CHANGES), *((each, True) for each in VECTORS)]
)
def test_stopping_between_any_two_calls(
    collection: str,
    encoder: FakeEncoder,
    monkeypatch: pytest.MonkeyPatch,
    change: str,
    recover: str,
    vectors: bool,
) -> None:
    monkeypatch.setattr(Session, "limit", lambda self: LIMIT)
    before, after = CHANGES[change]
    old, new = Document("d", text("old", before), OLD), Document("d", text("new", after), NEW)
    others = [Document("a", text("a", 2)), Document("z", text("z", 6))]
    if change == "only vector":
        others = []
    client = chromadb.EphemeralClient()

    def prepared(name: str) -> LandmarkStore:
        store = LandmarkStore(client, f"{collection}-{name}", encoder, document_vectors=vectors)
        store.add([*others, *([old] if before else [])])
        return store

    with prepared("expected") as store:
        unchanged = rows(store)
        store.add([new])
        expected = rows(store)
    for calls in range(100):
        with prepared(f"stop-{calls}") as store:
            stop_after(store, calls)
            try:
                store.add([new])
                finished = True
            except Stopped:
                finished = False
            del store._session.access.changing
        with LandmarkStore(client, f"{collection}-stop-{calls}", encoder) as store:
            check_reads(store, old if before else None, new if after else None, others)
            if recover == "delete":
                store.delete(["d"])
                assert not any(row.endswith("d#0") or row.startswith("d#") for row in rows(store))
            elif recover == "add old" and before:
                store.add([old], skip_unchanged=True)
                assert rows(store) == unchanged
                assert store.verify().ok
            elif recover == "repair":
                store.verify(repair=True)
                assert store.verify().ok
                check_reads(store, old if before else None, new if after else None, others)
            store.add([new], skip_unchanged=recover == "add unchanged")
            assert rows(store) == expected
            assert store.verify().ok
        if finished:
            break
    assert finished
    assert calls >= vectors + (1 if before + after <= 2 else 2) or change in (
        "fresh small",
        "longer",
        "same length",
        "blank small",
    )


def check_reads(store: LandmarkStore, old: Document | None, new: Document | None, others: list[Document]) -> None:
    """Everything that is found belongs to one whole document, old or new."""
    for each in others:
        assert store.get([each.id]) == [each]
    possible = [each for each in (old, new) if each is not None]
    got = store.get(["d"])
    assert not got or got[0] in possible
    assert {info.id for info in store.documents()} == {each.id for each in others} | {each.id for each in got}
    for query in ("old0 old1", "new0 new1", "new30"):
        for per in ("chunk", "document", "passage"):
            for hit in store.search(query, k=40, per=per):
                if hit.doc_id == "d":
                    assert [each for each in possible if each.text[hit.start : hit.end] == hit.text]
                    assert hit.metadata in (OLD, NEW)
                    assert not got or hit.metadata == got[0].metadata
        check_document_vectors(store, query, {each.id: each for each in [*others, *got]})
    if got:
        found = {(hit.start, hit.end) for hit in store.search("old0 new0", k=100) if hit.doc_id == "d"}
        assert len(found) == len(got[0].text.split()) // CHUNK


def check_document_vectors(store: LandmarkStore, query: str, documents: dict[str, Document]) -> None:
    """Every document that is stored is found, with the score of the state that is stored, and no other is."""
    hits = store.search(query, k=40, per="document", document_score="document_vector")
    vector = store.encoder.encode_queries([query])[0]
    expected = {
        key: float(store.encoder.encode_document(each.text).vector @ vector) for key, each in documents.items()
    }
    assert {hit.doc_id: hit.score for hit in hits} == pytest.approx(expected, abs=1e-5)
    for filter_ in ({"old": 1}, {"new": 2}):
        (key, value), *_ = filter_.items()
        found = store.search(query, k=1, per="document", document_score="document_vector", where=filter_)
        assert [hit.doc_id for hit in found] == [
            each.id for each in documents.values() if each.metadata.get(key) == value
        ]


@pytest.mark.parametrize("vectors", [False, True])
@pytest.mark.parametrize("chunks", [3, 4, 11])
def test_deleting_can_stop_anywhere(
    collection: str, encoder: FakeEncoder, monkeypatch: pytest.MonkeyPatch, chunks: int, vectors: bool
) -> None:
    monkeypatch.setattr(Session, "limit", lambda self: LIMIT)
    client = chromadb.EphemeralClient()
    document, other = Document("d", text("old", chunks), OLD), Document("other", text("x", 3))
    for calls in range(10):
        with LandmarkStore(client, f"{collection}-{calls}", encoder, document_vectors=vectors) as store:
            store.add([document, other])
            stop_after(store, calls)
            try:
                store.delete(["d"])
                finished = True
            except Stopped:
                finished = False
            del store._session.access.changing
        with LandmarkStore(client, f"{collection}-{calls}", encoder) as store:
            check_reads(store, document, None, [other])
            left = sum(row.startswith("d#") for row in rows(store))
            assert store.delete(["d"]) == left
            vector = {"vector other#0"} if vectors else set()
            assert set(rows(store)) == {"other#0", "other#1", "other#2"} | vector
            assert store.verify().ok
        if finished:
            break
    assert finished


def saved_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoder: FakeEncoder) -> list[Document]:
    """A database whose index files hold an older state than its log."""
    monkeypatch.setattr("chroma_lmk.settings._SYNC_THRESHOLD", 40)
    documents = [Document(f"d{n}", sample_text(n, 10 * CHUNK)) for n in range(9)]
    with LandmarkStore(tmp_path / "db", "lmk", encoder) as store:
        for each in documents:
            store.add([each])
    return documents


def index_files(path: Path) -> list[Path]:
    return sorted(
        each for each in path.glob("*/*") if each.suffix in (".bin", ".pickle") and "lmk" not in each.parts[-2]
    )


@pytest.mark.parametrize("damage", ["header.bin", "data_level0.bin", "index_metadata.pickle", "all"])
def test_index_files_that_were_cut_off_are_put_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoder: FakeEncoder, damage: str
) -> None:
    documents = saved_index(tmp_path, monkeypatch, encoder)
    path = tmp_path / "db"
    client = chromadb.PersistentClient(str(path))
    collection = client.get_collection("lmk", embedding_function=None)
    files = ChromaFiles(path)
    assert files.saved(str(collection.id)) == 80
    assert files.unsaved(str(collection.id)) == 10
    # What a process leaves that dies while Chroma saves its index: a copy, its marker, and half-written files.
    IndexBackup(files, str(collection.id)).make()
    client.close()
    damaged = [each for each in index_files(path) if damage in (each.name, "all")]
    assert damaged
    for each in damaged:
        os.truncate(each, 0 if each.suffix == ".pickle" else each.stat().st_size // 2)
    shutil.copytree(path, tmp_path / "plain")
    plain = [sys.executable, str(CHILD), "count", str(tmp_path / "plain")]
    # Chroma fails or even crashes; only vectors that are cut off it does not notice.
    unnoticed = damage == "data_level0.bin"
    assert unnoticed or subprocess.run(plain, capture_output=True, timeout=60).returncode != 0
    with LandmarkStore(path, "lmk", encoder) as store:
        assert store.count() == 90
        for each in documents:
            assert store.search(each.text[:40], k=1, per="document")[0].doc_id == each.id
        store.add([Document("more", sample_text(100, 40 * CHUNK))])
        assert store.count() == 130
    assert not list((path / "lmk-recovery").iterdir())
    with LandmarkStore(path, "lmk", encoder) as store:
        assert store.get([each.id for each in documents]) == documents


def test_index_files_that_were_saved_completely_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoder: FakeEncoder
) -> None:
    saved_index(tmp_path, monkeypatch, encoder)
    path = tmp_path / "db"
    client = chromadb.PersistentClient(str(path))
    collection = client.get_collection("lmk", embedding_function=None)
    IndexBackup(ChromaFiles(path), str(collection.id)).make()
    extra = np.eye(32, dtype=np.float32)[:30]
    collection.upsert(ids=[f"x#{n}" for n in range(30)], embeddings=extra, documents=["x"] * 30)
    assert ChromaFiles(path).saved(str(collection.id)) == 120
    client.close()
    with LandmarkStore(path, "lmk", encoder) as store:
        assert store.count() == 120
        assert store.collection.query(query_embeddings=extra[:1], n_results=1)["ids"] == [["x#0"]]


def test_a_failed_write_leaves_nothing_half_done(
    tmp_path: Path, encoder: FakeEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk fills up in the middle: a real limit on the size of files, in a process of its own."""
    result = subprocess.run(
        [sys.executable, str(CHILD), "full-disk", str(tmp_path / "db")],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert result.returncode == 0, result.stderr
    assert "StoreError" in result.stdout
    with LandmarkStore(tmp_path / "db", "lmk", encoder) as store:
        whole = store.count("document")
        assert 0 < whole < 80
        assert store.verify().ok
        documents = [Document(f"d{n}", sample_text(n, 400)) for n in range(80)]
        report = store.add(documents, skip_unchanged=True)
        assert (report.unchanged, report.added) == (whole, 80 - whole)
        assert store.get([each.id for each in documents]) == documents
        assert store.verify().ok


def test_killed_at_random_instants_it_converges(tmp_path: Path, encoder: FakeEncoder) -> None:
    """SIGKILL during adding, replacing, deleting and saving of the index, in processes of their own."""
    kills = int(os.environ.get("LMK_KILLS", "40"))
    result = subprocess.run(
        [sys.executable, str(CHILD), "kills", str(tmp_path / "db"), str(kills)],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert result.returncode == 0, result.stderr
    killed, saving = map(int, result.stdout.split())
    assert killed == kills
    assert saving > 0
    from crash_child import final_documents

    documents = final_documents()
    with LandmarkStore(tmp_path / "db", "lmk", encoder) as store:
        assert sorted(info.id for info in store.documents()) == sorted(each.id for each in documents)
        assert store.get([each.id for each in documents]) == documents
        assert store.verify().ok
        expected = sum(len(encoder.encode_document(each.text).chunks) for each in documents)
        assert store.count() == expected
        for each in documents:
            for chunk in encoder.encode_document(each.text).chunks[::5]:
                best = store.search(chunk.vector, k=1)[0]
                assert best.score == pytest.approx(1, abs=1e-5)
                assert best.text == chunk.text
