"""Case 22: a collection belongs to one encoder, remembers it, and says so before anything is written."""

import gc
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import chromadb
import numpy as np
import pytest
from chroma_fakes import FakeEncoder

from chroma_lmk import (
    FingerprintMismatchError,
    LandmarkStore,
    NotALandmarkCollectionError,
    StoreError,
    StoreNotFoundError,
    drop_store,
    list_stores,
)
from lmk_embed.errors import ConfigError, LandmarkError
from lmk_embed.results import Document


@pytest.mark.parametrize("other", [{"dimension": 16}, {"model": "other"}, {"words": 64}])
def test_case_22_another_encoder_is_refused_before_any_work(
    connect: object, collection: str, encoder: FakeEncoder, other: dict
) -> None:
    with LandmarkStore(connect(), collection, encoder) as store:
        store.add([Document("d", "some text")])
    stranger = replace(encoder, **other, embedded=[])
    with pytest.raises(FingerprintMismatchError) as caught:
        LandmarkStore(connect(), collection, stranger)
    for part in (encoder.fingerprint, stranger.fingerprint, "lmk index --rebuild", "another collection"):
        assert part in str(caught.value)
    assert (caught.value.stored, caught.value.given) == (encoder.fingerprint, stranger.fingerprint)
    assert isinstance(caught.value, LandmarkError)
    assert stranger.embedded == []
    with LandmarkStore(connect(), collection, encoder) as store:
        assert store.count() == 1


def test_case_22_the_same_encoder_from_elsewhere_opens(connect: object, collection: str) -> None:
    with LandmarkStore(connect(), collection, FakeEncoder()) as store:
        store.add([Document("d", "some text")])
    with LandmarkStore(connect(), collection, FakeEncoder()) as store:
        assert store.search("some text")[0].doc_id == "d"


def test_case_22_a_collection_of_someone_else_is_refused(
    connect: object, collection: str, encoder: FakeEncoder
) -> None:
    place = connect()
    client = chromadb.PersistentClient(str(place)) if isinstance(place, Path) else place
    theirs = client.create_collection(collection, embedding_function=None)
    theirs.add(ids=["x"], embeddings=[[1.0, 2.0]], documents=["theirs"])
    with pytest.raises(NotALandmarkCollectionError, match="not made by LandmarkStore"):
        LandmarkStore(client, collection, encoder)
    with pytest.raises(NotALandmarkCollectionError):
        LandmarkStore.open(client, collection, load_encoder=FakeEncoder.from_dict)
    with pytest.raises(NotALandmarkCollectionError):
        drop_store(client, collection)
    assert theirs.count() == 1
    assert encoder.embedded == []


def test_case_22_two_stores_of_a_new_collection_agree(
    connect: object, collection: str, encoder: FakeEncoder
) -> None:
    first = LandmarkStore(connect(), collection, encoder)
    second = LandmarkStore(connect(), collection, replace(encoder, words=3))
    with first, second:
        first.add([Document("d", "some text")])
        with pytest.raises(FingerprintMismatchError):
            second.add([Document("e", "other text")])
        with pytest.raises(FingerprintMismatchError):
            second.search("text")
        assert first.count() == 1


def test_open_rebuilds_the_encoder(connect: object, collection: str) -> None:
    with LandmarkStore(connect(), collection, FakeEncoder(words=5)) as store:
        store.add([Document("d", "one two three four five six seven")])
    with LandmarkStore.open(connect(), collection, load_encoder=FakeEncoder.from_dict) as store:
        assert store.encoder.words == 5
        assert store.search("six seven", k=1)[0].text == "six seven"
        assert store.add([Document("e", "more")]).added == 1


def test_open_refuses_a_model_that_has_changed(connect: object, collection: str) -> None:
    with LandmarkStore(connect(), collection, FakeEncoder()) as store:
        store.add([Document("d", "text")])
    with pytest.raises(FingerprintMismatchError):
        LandmarkStore.open(connect(), collection, load_encoder=lambda saved: FakeEncoder(**saved | {"words": 9}))


def test_open_says_what_is_there_instead(tmp_path: Path, encoder: FakeEncoder) -> None:
    with pytest.raises(StoreNotFoundError, match="no database at"):
        LandmarkStore.open(tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()
    with LandmarkStore(tmp_path / "db", "letters", encoder) as store:
        store.add([Document("d", "text")])
    with pytest.raises(StoreNotFoundError, match=r"no collection 'lmk'.*'letters'"):
        LandmarkStore.open(tmp_path / "db")
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreError, match="is a file"):
        LandmarkStore(tmp_path / "file", "lmk", encoder)


def test_list_stores_needs_no_model(tmp_path: Path, encoder: FakeEncoder) -> None:
    with LandmarkStore(tmp_path / "db", "letters", encoder, space="l2") as store:
        store.add([Document("d", "text")])
    chromadb.PersistentClient(str(tmp_path / "db")).create_collection("theirs", embedding_function=None)
    (info,) = list_stores(tmp_path / "db")
    assert (info.collection, info.fingerprint, info.dimension) == ("letters", encoder.fingerprint, 32)
    assert (info.space, info.encoder) == ("l2", encoder.to_dict())
    with pytest.raises(StoreNotFoundError):
        list_stores(tmp_path / "nowhere")


def test_drop_store_makes_room_for_another_encoder(connect: object, collection: str) -> None:
    with LandmarkStore(connect(), collection, FakeEncoder()) as store:
        store.add([Document("d", "text")])
    if isinstance(connect(), Path):
        assert drop_store(connect(), "not-there") is False
    assert drop_store(connect(), collection) is True
    with LandmarkStore(connect(), collection, FakeEncoder(dimension=7)) as store:
        assert store.count() == 0
        store.add([Document("e", "text")])
        assert store.search("text")[0].doc_id == "e"


def test_a_collection_that_is_dropped_while_open_is_an_error(
    connect: object, collection: str, encoder: FakeEncoder
) -> None:
    with LandmarkStore(connect(), collection, encoder) as store:
        store.add([Document("d", "text")])
        store.collection  # noqa: B018
        client = store._session.client
        client.delete_collection(collection)
        with pytest.raises(StoreNotFoundError, match="deleted while it was open"):
            store.search("text")


def test_the_space_of_a_collection_cannot_be_changed(local_store: LandmarkStore, encoder: FakeEncoder) -> None:
    local_store.add([Document("d", "text")])
    LandmarkStore(local_store._session.client, local_store.info.collection, encoder, space="cosine").close()
    with pytest.raises(ConfigError, match="space 'cosine', not 'l2'"):
        LandmarkStore(local_store._session.client, local_store.info.collection, encoder, space="l2")
    with pytest.raises(ConfigError, match="space must be one of"):
        LandmarkStore(local_store._session.client, "other", encoder, space="hamming")


def test_opening_for_reading_writes_nothing(tmp_path: Path, encoder: FakeEncoder) -> None:
    with LandmarkStore(tmp_path / "db", "lmk", encoder) as store:
        assert store.search("anything") == []
        assert store.get(["x"]) == []
        assert store.delete(["x"]) == 0
        assert list(store.documents()) == []
        assert store.digests(["x"]) == {}
        assert store.verify().ok
        assert store.collection is None
    assert not (tmp_path / "db" / "lmk-writer.lock").exists()


def test_a_client_stays_open_and_a_path_is_closed(tmp_path: Path, collection: str, encoder: FakeEncoder) -> None:
    client = chromadb.PersistentClient(str(tmp_path / "db"))
    store = LandmarkStore(client, collection, encoder)
    store.add([Document("d", "text")])
    store.close()
    store.close()
    assert client.get_collection(collection, embedding_function=None).count() == 1
    with pytest.raises(StoreError, match="closed"):
        store.search("text")


def test_an_in_memory_client_works(collection: str, encoder: FakeEncoder) -> None:
    with LandmarkStore(chromadb.EphemeralClient(), collection, encoder) as store:
        store.add([Document("d", "some text", {"a": None})])
        assert store.search("some text")[0].metadata == {"a": None}
        assert store.delete(["d"]) == 1


def test_plain_chroma_reads_our_rows(local_store: LandmarkStore, encoder: FakeEncoder) -> None:
    local_store.add([Document("d", "some text", {"year": 2026})])
    found = local_store.collection.query(
        query_embeddings=np.asarray(encoder.encode_queries(["some text"])), where={"year": 2026}
    )
    assert found["ids"] == [["d#0"]]
    assert found["documents"] == [["some text"]]


def test_an_encoder_is_required(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"LandmarkStore\.open"):
        LandmarkStore(tmp_path / "db")
    assert not (tmp_path / "db").exists()


@pytest.mark.parametrize("wrong", [None, 3, object()])
def test_other_things_than_a_path_or_client_are_refused(wrong: object, encoder: FakeEncoder) -> None:
    with pytest.raises(TypeError, match="path or a synchronous Chroma client"):
        LandmarkStore(wrong, "lmk", encoder)


@pytest.mark.parametrize("name", ["", "ab", "a b c", "-lmk", "lmk-", "x" * 513, "straße"])
def test_a_name_chroma_refuses_is_refused_before_anything_is_embedded(
    tmp_path: Path, encoder: FakeEncoder, name: str
) -> None:
    with pytest.raises(ConfigError, match="3 to 512"):
        LandmarkStore(tmp_path / "db", name, encoder)
    assert not (tmp_path / "db").exists()


def test_a_damaged_database_is_a_clear_error(tmp_path: Path, encoder: FakeEncoder) -> None:
    (tmp_path / "db").mkdir()
    (tmp_path / "db" / "chroma.sqlite3").write_bytes(b"this is no database" * 100)
    for _ in range(2):
        with pytest.raises(StoreError, match="cannot open the database"):
            LandmarkStore(tmp_path / "db", "lmk", encoder)


def test_a_forgotten_store_lets_others_write(tmp_path: Path, encoder: FakeEncoder) -> None:
    store = LandmarkStore(tmp_path / "db", "lmk", encoder)
    store.add([Document("a", "text")])
    del store
    gc.collect()
    with LandmarkStore(f"{tmp_path}/./db", "lmk", encoder) as other:
        assert other.add([Document("b", "text")]).added == 1


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("import sys, chroma_lmk; assert not {'torch', 'transformers'} & set(sys.modules)", ""),
        (
            "import sys; sys.modules['chromadb'] = None; import chroma_lmk",
            "MissingExtraError: 'chromadb' is not installed. Install it with: pip install \"lmk-embed[chroma]\"",
        ),
    ],
)
def test_importing_loads_no_model_and_a_missing_extra_is_named(script: str, expected: str) -> None:
    # chromadb itself is loaded: a collection opened by name needs our embedding function to be registered.
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert expected in result.stderr and bool(result.returncode) == bool(expected)
