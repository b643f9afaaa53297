"""Export and import: an index moves as one file, and nothing is embedded again."""

import json
import random
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from chroma_fakes import FakeEncoder, sample_text
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_metadata import metadata_of, same

from chroma_lmk import (
    DamagedStoreError,
    ExportFileError,
    ExportReport,
    FingerprintMismatchError,
    LandmarkStore,
    export_info,
    transfer,
)
from lmk_embed.errors import MissingExtraError
from lmk_embed.results import Document

CHILD = Path(__file__).with_name("crash_child.py")
METADATA = {
    "a": None,
    "tags": ["x", "y"],
    "nest": {"p": 1, "q": [None, 1.5, {"r": []}]},
    "big": 2**63,
    "mixed": [1, 2.0, "x", True],
    "one": 1,
    "real": 1.0,
    "minus": -0.0,
    "ulp": 0.1 + 0.2,
    "": "é\0",
}


def library(count: int = 20) -> list[Document]:
    texts = [f"\n {sample_text(n, 5 + 11 * n)}\0é\r\n" for n in range(count)]
    return [Document(f"d#{n}", text, METADATA if n % 2 else {"n": n}) for n, text in enumerate(texts)]


def everything(store: LandmarkStore, *, without: tuple[str, ...] = ()) -> dict:
    """All rows as Chroma has them, vectors included."""
    found = store.collection.get(include=["documents", "metadatas", "embeddings"])
    rows = zip(found["ids"], found["documents"], found["metadatas"], found["embeddings"], strict=True)
    return {
        row: (text, {key: comparable(key, metadata[key]) for key in metadata if key not in without}, vector)
        for row, text, metadata, vector in rows
    }


def comparable(key: str, value: object) -> object:
    return json.loads(value) if key == "lmk:json" else value  # the order of keys is not kept


def assert_equal_rows(left: dict, right: dict) -> None:
    assert left.keys() == right.keys()
    for row, (text, metadata, vector) in left.items():
        assert (text, metadata) == right[row][:2]
        # Chroma scales vectors to unit length again whenever it takes them, which may change their last bit.
        assert np.abs(vector - right[row][2]).max() < 1e-6


@pytest.fixture
def other(tmp_path: Path) -> LandmarkStore:
    """An empty store with the same encoder."""
    with LandmarkStore(tmp_path / "other", "other", FakeEncoder()) as opened:
        yield opened


def test_what_is_exported_is_imported_exactly(store: LandmarkStore, other: LandmarkStore, tmp_path: Path) -> None:
    documents = library()
    store.add(documents)
    store.add([Document("blank", " ")])
    path = tmp_path / "index.parquet"
    report = store.export(path)
    assert report == ExportReport(documents=20, chunks=store.count())
    assert [each.name for each in tmp_path.iterdir() if each.is_file()] == ["index.parquet"]
    imported = other.import_(path)
    assert (imported.added, imported.chunks) == (20, report.chunks)
    assert imported.tokens == sum(6 + 11 * n for n in range(20)), "words of the texts"
    assert other.encoder.embedded == []
    assert_equal_rows(everything(other), everything(store))
    back = other.get([each.id for each in documents])
    assert back == documents
    assert all(
        same(dict(left.metadata), dict(right.metadata)) for left, right in zip(back, documents, strict=True)
    )
    assert other.verify().ok
    for settings_ in ({}, {"max_tokens": 16}):
        mine, theirs = (each.search("w5 w6", 9, **settings_) for each in (other, store))
        assert [(hit.doc_id, hit.text) for hit in mine] == [(hit.doc_id, hit.text) for hit in theirs]
        assert [hit.score for hit in mine] == pytest.approx([hit.score for hit in theirs], abs=1e-6)
    again = other.import_(path)
    assert (again.added, again.replaced, again.unchanged, again.chunks) == (0, 0, 20, 0)


def test_import_into_a_server(
    local_store: LandmarkStore, connect: Callable[[], object], collection: str, tmp_path: Path
) -> None:
    local_store.add(library())
    local_store.export(tmp_path / "index.parquet")
    with LandmarkStore(connect(), f"{collection}-target", FakeEncoder()) as target:
        assert target.import_(tmp_path / "index.parquet").added == 20
        assert target.get([each.id for each in library()]) == library()
        assert_equal_rows(everything(target), everything(local_store))


def test_import_replaces_what_differs_and_leaves_the_rest(
    local_store: LandmarkStore, other: LandmarkStore, tmp_path: Path
) -> None:
    local_store.add(library())
    local_store.export(tmp_path / "index.parquet")
    changed = Document("d#3", sample_text(99, 200), {"old": 1, "tags": ["z"]})
    own = Document("own", "a text of its own")
    other.add([changed, own, *library()[:2]])
    report = other.import_(tmp_path / "index.parquet")
    assert (report.added, report.replaced, report.unchanged) == (17, 1, 2)
    assert other.get([each.id for each in [*library(), own]]) == [*library(), own]
    assert other.verify().ok


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(st.text(st.characters(codec="utf-8"), max_size=60), metadata_of), min_size=1, max_size=5)
)
def test_any_text_and_metadata_survive(
    shared_store: LandmarkStore, tmp_path_factory: pytest.TempPathFactory, several: list[tuple[str, dict]]
) -> None:
    folder = tmp_path_factory.mktemp("any")
    shared_store.delete([info.id for info in shared_store.documents()])
    documents = [Document(str(n), f"x{text}", metadata) for n, (text, metadata) in enumerate(several)]
    shared_store.add(documents)
    shared_store.export(folder / "index.parquet")
    with LandmarkStore(folder / "db", "lmk", FakeEncoder()) as target:
        target.import_(folder / "index.parquet")
        for back, given_ in zip(target.get([each.id for each in documents]), documents, strict=True):
            assert back.text == given_.text
            assert same(dict(back.metadata), dict(given_.metadata))


def test_the_file_says_where_it_comes_from(
    local_store: LandmarkStore, encoder: FakeEncoder, tmp_path: Path
) -> None:
    path = tmp_path / "index.parquet"
    assert local_store.export(path) == ExportReport(0, 0)
    assert export_info(path) == local_store.info
    assert FakeEncoder.from_dict(export_info(path).encoder).fingerprint == encoder.fingerprint
    assert local_store.import_(path).documents == 0
    assert local_store.collection is None
    stored = json.loads(pq.read_schema(path).metadata[b"lmk:store"])
    assert (stored["fingerprint"], stored["format"]) == (encoder.fingerprint, 1)
    local_store.add(library())
    local_store.export(path)
    assert pq.ParquetFile(path).metadata.row_group(0).column(0).compression == "ZSTD"


def test_another_encoder_is_refused(local_store: LandmarkStore, tmp_path: Path) -> None:
    local_store.add(library(3))
    path = tmp_path / "index.parquet"
    local_store.export(path)
    with LandmarkStore(tmp_path / "b", "lmk", FakeEncoder(model="another")) as target:
        with pytest.raises(FingerprintMismatchError, match=r"export_info\(path\)") as caught:
            target.import_(path)
        assert target.collection is None
        assert (caught.value.stored, caught.value.given) == (local_store.info.fingerprint, target.info.fingerprint)
        for part in (local_store.info.fingerprint, target.info.fingerprint, str(path)):
            assert part in str(caught.value)


def test_damaged_and_foreign_files_are_refused(
    local_store: LandmarkStore, other: LandmarkStore, tmp_path: Path
) -> None:
    local_store.add(library())
    path, bad = tmp_path / "index.parquet", tmp_path / "bad.parquet"
    local_store.export(path)
    content = path.read_bytes()

    def refused(message: str) -> None:
        with pytest.raises(ExportFileError, match=message) as caught:
            other.import_(bad)
        assert str(bad) in str(caught.value)

    for cut in (0, 3, len(content) // 2, len(content) - 1):
        bad.write_bytes(content[:cut])
        refused("cannot be read as Parquet")
    bad.write_text("id,text\n1,x\n")
    refused("cannot be read as Parquet")
    pq.write_table(pa.table({"id": [1]}), bad)
    refused(r"was not written by LandmarkStore.export; its columns are id")
    table = pq.read_table(path)
    pq.write_table(table.drop_columns(["gap"]), bad)
    refused("has the columns .* expected doc_id")
    info = json.loads(table.schema.metadata[b"lmk:store"])
    for newer in ({"format": 2}, {"format": 2, "shape": "round"}):
        pq.write_table(table.replace_schema_metadata({b"lmk:store": json.dumps(info | newer)}), bad)
        refused("format 2, .* reads up to 1: upgrade lmk-embed")
    for stored in ("[]", "{", "{}"):
        pq.write_table(table.replace_schema_metadata({b"lmk:store": stored}), bad)
        refused("does not say what it holds")
    with pytest.raises(FileNotFoundError):
        other.import_(tmp_path / "nowhere.parquet")
    assert other.count() == 0


def test_altered_rows_are_refused(local_store: LandmarkStore, other: LandmarkStore, tmp_path: Path) -> None:
    local_store.add(library(4))
    path = tmp_path / "index.parquet"
    local_store.export(path)
    table = pq.read_table(path)
    rows = table.to_pylist()

    def refused(message: str, changed: list[dict]) -> None:
        pq.write_table(pa.Table.from_pylist(changed, table.schema), path)
        with pytest.raises(ExportFileError, match=message):
            other.import_(path)

    def altered(number: int, **values: object) -> list[dict]:
        return [row | values if each == number else row for each, row in enumerate(rows)]

    refused("text or metadata of document 'd#0'", altered(0, text="another"))
    refused("text or metadata of document 'd#0'", altered(0, metadata='{"n": 1}'))
    refused("text or metadata of document 'd#0'", altered(0, metadata="{"))
    refused("text or metadata of document 'd#0'", altered(0, metadata="[1]"))
    refused("is not of unit length", altered(2, vector=[2.0] * 32))
    refused("is not of unit length", altered(2, norm=float("nan")))
    refused("is not text", altered(0, end=rows[0]["end"] + 1))
    refused("are not all there, or not in order", rows[2:])
    refused("are not all there, or not in order", rows[:-1])
    refused("are not all there, or not in order", [*rows[:2], *rows[3:]])
    refused("are not all there, or not in order", [*rows[:2], rows[3], rows[2], *rows[4:]])
    refused("holds document 'd#0' twice", [rows[0], *rows])


def test_every_flipped_bit_is_noticed(local_store: LandmarkStore, other: LandmarkStore, tmp_path: Path) -> None:
    local_store.add(library(6))
    path = tmp_path / "index.parquet"
    local_store.export(path)
    content = path.read_bytes()
    expected = everything(local_store)
    rng = random.Random(1)
    refused = 0
    for _ in range(60):
        place = rng.randrange(len(content))
        path.write_bytes(content[:place] + bytes([content[place] ^ 1 << rng.randrange(8)]) + content[place + 1 :])
        try:
            other.import_(path)
        except (ExportFileError, FingerprintMismatchError):
            refused += 1
        stored = everything(other) if other.collection else {}
        assert_equal_rows(stored, {row: expected[row] for row in stored})
    assert refused > 30


def test_an_export_that_fails_leaves_the_old_file(
    local_store: LandmarkStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local_store.add(library(6))
    folder = tmp_path / "out"
    folder.mkdir()
    path = folder / "index.parquet"
    local_store.export(path)
    before = path.read_bytes()
    monkeypatch.setattr(transfer, "_ROW_GROUP", 5)
    local_store.collection.delete(ids=["d#5#2"])
    with pytest.raises(DamagedStoreError, match="'d#5'"):
        local_store.export(path)
    assert path.read_bytes() == before
    assert [each.name for each in folder.iterdir()] == ["index.parquet"]
    local_store.verify(repair=True)
    assert local_store.export(path).documents == 5
    assert pq.ParquetFile(path).num_row_groups > 1


def test_documents_larger_than_a_row_group_or_a_write(
    local_store: LandmarkStore, other: LandmarkStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "_ROW_GROUP", 7)
    monkeypatch.setattr("chroma_lmk.session.Session.limit", lambda self: 11)
    local_store.add(library())
    path = tmp_path / "index.parquet"
    local_store.export(path)
    assert pq.ParquetFile(path).num_row_groups > local_store.count() // 14
    other.import_(path)
    assert_equal_rows(everything(other), everything(local_store))
    assert other.verify().ok


def test_export_while_others_read_and_write(
    local_store: LandmarkStore, other: LandmarkStore, tmp_path: Path
) -> None:
    local_store.add(library())
    errors: list[BaseException] = []

    def write() -> None:
        try:
            for n in range(20):
                local_store.add([Document("moving", sample_text(n, 30 + n))])
                local_store.delete([f"d#{n}"] if n % 2 else [])
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=write)
    thread.start()
    paths = [tmp_path / f"{n}.parquet" for n in range(4)]
    for path in paths:
        local_store.export(path)
    thread.join()
    assert not errors, errors[0]
    for path in paths:
        other.import_(path)
        kept = [each.id for each in library() if int(each.id[2:]) % 2 == 0]
        assert len(other.get(kept)) == 10
    assert other.verify().ok


def test_killed_while_importing_it_converges(local_store: LandmarkStore, tmp_path: Path) -> None:
    documents = library(40)
    local_store.add(documents)
    path, target = tmp_path / "index.parquet", tmp_path / "target"
    local_store.export(path)
    command = [sys.executable, str(CHILD), "imports", str(target), str(path), "8"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    assert int(result.stdout) >= 1
    with LandmarkStore(target, "lmk", FakeEncoder()) as store:
        assert store.get([each.id for each in documents]) == documents
        assert store.verify().ok
        # Documents of more than 25 rows took several calls, which their rows remember.
        assert_equal_rows(everything(store, without=("lmk:large",)), everything(local_store))


def test_without_pyarrow_the_message_says_what_to_install(
    local_store: LandmarkStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match=r'pip install "lmk-embed\[parquet\]"'):
        local_store.export(tmp_path / "x.parquet")
    with pytest.raises(MissingExtraError):
        local_store.import_(tmp_path / "x.parquet")


def test_what_a_killed_export_leaves_is_removed_by_the_next(tmp_path: Path) -> None:
    path, folder = tmp_path / "index.parquet", tmp_path / "db"
    with LandmarkStore(folder, "lmk", FakeEncoder()) as store:
        store.add(library(3))
    command = [sys.executable, str(CHILD), "export", str(folder), str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout.readline() == "begun\n"
        (part,) = tmp_path.glob(".index.parquet.*.part")
        with LandmarkStore(folder, "lmk", FakeEncoder()) as store:
            store.export(path)
            assert part.exists(), "its process is alive"
            child.kill()
            child.wait()
            others = [tmp_path / ".other.parquet.part", tmp_path / ".index.parquet.elsewhere.1.part"]
            for each in others:
                each.touch()
            assert store.export(path).documents == 3
    assert not part.exists()
    assert all(each.exists() for each in others)
