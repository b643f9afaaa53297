"""Document vectors in a collection of their own: all documents are ranked by them, and they follow the chunks."""

from pathlib import Path

import chromadb
import numpy as np
import pytest
from chroma_fakes import FakeEncoder, VectorEncoder, sample_text

from chroma_lmk import LandmarkStore, NotALandmarkCollectionError, StoreError, drop_store, list_stores
from lmk_embed.errors import ConfigError
from lmk_embed.results import Document

QUERY = {"per": "document", "document_score": "document_vector"}


def decoys() -> list[Document]:
    """Many documents with one good chunk each, and one that is good as a whole only."""
    mixed = [Document(f"decoy {n:02}", f"1 0 {n / 100}\n-0.9 0.5 0", {"kind": "decoy", "n": n}) for n in range(60)]
    return [*mixed, Document("whole", "0.8 0.6 0\n0.8 -0.6 0", {"kind": "whole", "only": "here"})]


@pytest.fixture
def vectors(connect: object, collection: str) -> LandmarkStore:
    with LandmarkStore(connect(), collection, VectorEncoder(dimension=3), document_vectors=True) as opened:
        yield opened


def test_all_documents_are_ranked(vectors: LandmarkStore, exact_plain: LandmarkStore) -> None:
    for store in (vectors, exact_plain):
        store.add(decoys())
    best, second = vectors.search("1 0 0", k=2, **QUERY)
    assert (best.doc_id, round(best.score, 5)) == ("whole", 1.0)
    assert best.text == "0.8 0.6 0"
    assert best.matches[0].score == pytest.approx(0.8, abs=1e-5)
    assert best.metadata == {"kind": "whole", "only": "here"}
    assert second.doc_id == "decoy 00"
    assert exact_plain.search("1 0 0", k=2, **QUERY)[0].doc_id != "whole", "not among the best chunks"


@pytest.fixture
def exact_plain(connect: object, collection: str) -> LandmarkStore:
    with LandmarkStore(connect(), f"{collection}-plain", VectorEncoder(dimension=3)) as opened:
        yield opened


def test_filters_and_limits(vectors: LandmarkStore) -> None:
    vectors.add(decoys())
    names = [hit.doc_id for hit in vectors.search("1 0 0", k=3, where={"kind": "decoy"}, **QUERY)]
    assert names == ["decoy 00", "decoy 01", "decoy 02"]
    assert [hit.doc_id for hit in vectors.search("1 0 0", k=9, min_score=0.9, **QUERY)] == ["whole"]
    texts = vectors.search("1 0 0", k=9, where_document={"$contains": "1 0 0.4"}, **QUERY)
    assert {hit.doc_id for hit in texts} < {"decoy 04", *(f"decoy {n}" for n in range(40, 50))}
    assert len(texts) == 9
    assert len(vectors.search("1 0 0", k=1_000, **QUERY)) == 61
    assert vectors.count() == 122


def test_equal_documents_keep_their_order(vectors: LandmarkStore) -> None:
    vectors.add([Document(name, "1 0 0\n0 1 0") for name in "gfedcba"])
    for k in (1, 3, 7):
        assert [hit.doc_id for hit in vectors.search("1 0 0", k=k, **QUERY)] == list("abcdefg")[:k]


def test_they_follow_the_documents(connect: object, collection: str, encoder: FakeEncoder) -> None:
    with LandmarkStore(connect(), collection, encoder, document_vectors=True) as store:
        store.add([Document(f"d{n}", sample_text(n, 60), {"n": n, f"k{n}": None}) for n in range(9)])
        store.add([Document("d3", sample_text(33, 20), {"n": 33}), Document("d4", " ")])
        assert store.delete(["d5"]) == 8
        assert store.add([Document("d6", sample_text(6, 60), {"n": 6, "k6": None})], skip_unchanged=True).unchanged
        assert store.verify().ok
    with LandmarkStore.open(connect(), collection, load_encoder=FakeEncoder.from_dict) as store:
        assert store.info.document_vectors
        query = encoder.encode_queries(["w5 w6"])[0]
        hits = store.search("w5 w6", k=20, **QUERY)
        documents = store.get([f"d{n}" for n in range(9)])
        expected = {each.id: float(encoder.encode_document(each.text).vector @ query) for each in documents}
        assert {hit.doc_id: hit.score for hit in hits} == pytest.approx(expected, abs=1e-5)
        assert set(expected) == {"d0", "d1", "d2", "d3", "d6", "d7", "d8"}
        assert {hit.doc_id: hit.metadata for hit in hits} == {each.id: each.metadata for each in documents}


def test_verify_puts_them_right(store: LandmarkStore, connect: object, collection: str) -> None:
    documents = [Document(f"d{n}", sample_text(n, 40)) for n in range(5)]
    with LandmarkStore(connect(), f"{collection}-v", FakeEncoder(), document_vectors=True) as checked:
        checked.add(documents)
        beside = checked._session.find().vectors.collection
        good = beside.get(include=["embeddings", "metadatas"])
        beside.delete(ids=["d1#0"])
        beside.update(ids=["d2#0"], metadatas=[{"lmk:digest": "other"}])
        beside.upsert(
            ids=["gone#0"],
            embeddings=[good["embeddings"][0]],
            metadatas=[good["metadatas"][0] | {"lmk:doc": "gone"}],
        )
        report = checked.verify()
        assert (report.ok, report.vectors, report.documents) == (False, ("d1", "d2", "gone"), 5)
        assert "gone" not in {hit.doc_id for hit in checked.search("w1", k=9, **QUERY)}
        assert checked.verify(repair=True).repaired
        assert checked.verify().ok
        after = beside.get(include=["embeddings", "metadatas"])
        before = dict(zip(good["ids"], good["embeddings"], strict=True))
        assert set(after["ids"]) == set(before)
        for row, vector in zip(after["ids"], after["embeddings"], strict=True):
            assert np.allclose(vector, before[row], atol=1e-6)


def test_export_and_import_know_them(tmp_path: Path, encoder: FakeEncoder) -> None:
    documents = [Document(f"d{n}", sample_text(n, 50)) for n in range(6)]
    with LandmarkStore(tmp_path / "a", "plain", encoder) as plain:
        plain.add(documents)
        plain.export(tmp_path / "plain.parquet")
    with LandmarkStore(tmp_path / "b", "rich", encoder, document_vectors=True) as rich:
        rich.import_(tmp_path / "plain.parquet")
        assert rich.verify().ok
        assert {hit.doc_id for hit in rich.search("w1", k=9, **QUERY)} == {each.id for each in documents}
        rich.export(tmp_path / "rich.parquet")
    with LandmarkStore(tmp_path / "c", "plain", encoder) as back:
        assert back.import_(tmp_path / "rich.parquet").added == 6


def test_one_collection_for_its_owner(connect: object, collection: str, encoder: FakeEncoder) -> None:
    place = connect()
    client = chromadb.PersistentClient(str(place)) if isinstance(place, Path) else place
    with LandmarkStore(client, collection, encoder, document_vectors=True) as store:
        store.add([Document("d", "some text")])
        beside = store.info.vectors_collection
    mine = {info.collection: info.document_vectors for info in list_stores(client)}
    assert mine[collection] is True
    assert beside not in mine
    with pytest.raises(NotALandmarkCollectionError):
        LandmarkStore(client, beside, encoder)
    with pytest.raises(ConfigError, match=r"with document vectors.*import_"):
        LandmarkStore(client, collection, encoder, document_vectors=False)
    assert drop_store(client, collection)
    assert not {each.name for each in client.list_collections()} & {collection, beside}
    with LandmarkStore(client, collection, encoder) as store:
        store.add([Document("d", "some text")])
    with pytest.raises(ConfigError, match="without document vectors"):
        LandmarkStore(client, collection, encoder, document_vectors=True)


def test_what_others_made_or_deleted_is_named(connect: object, collection: str, encoder: FakeEncoder) -> None:
    place = connect()
    client = chromadb.PersistentClient(str(place)) if isinstance(place, Path) else place
    client.create_collection(f"{collection}.documents", embedding_function=None)
    with LandmarkStore(client, collection, encoder, document_vectors=True) as store:
        with pytest.raises(NotALandmarkCollectionError, match="something else made one of that name"):
            store.add([Document("d", "some text")])
        client.delete_collection(f"{collection}.documents")
        assert store.add([Document("d", "some text")]).added == 1
    client.delete_collection(f"{collection}.documents")
    with pytest.raises(StoreError, match="lmk index --rebuild"):
        LandmarkStore(client, collection, encoder)
    assert drop_store(client, collection)
    with pytest.raises(ConfigError, match="at most 502"):
        LandmarkStore(client, "x" * 503, encoder, document_vectors=True)
