"""Chroma's own calls with our embedding function (case 23): built often, loaded once, never the wrong model."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import chromadb
import numpy as np
import pytest

from chroma_lmk import FingerprintMismatchError, LMKEmbeddingFunction, NotALandmarkCollectionError
from chroma_lmk.embedding_function import _Encoders
from lmk_embed import CheckpointError, ConfigError, LandmarkEncoder
from lmk_embed.backends.torch import TorchBackend

TEXTS = ["The pump is too hot.", "The rent is due in May.", "Nitrate rises after heavy rain."]


@pytest.fixture
def model(tiny_model: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_model, tmp_path / "model"))


@pytest.fixture(params=["embedded", "server"])
def client(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    if request.param == "embedded":
        return chromadb.PersistentClient(str(tmp_path / "db"))
    return chromadb.HttpClient(host="127.0.0.1", port=request.getfixturevalue("chroma_server"))


def test_plain_chroma_calls_give_our_vectors(client: Any, collection: str, model: Path) -> None:
    function = LMKEmbeddingFunction(str(model), document_prompt="text: ", query_prompt="find: ")
    made = client.create_collection(collection, embedding_function=function)
    made.add(ids=list("abc"), documents=TEXTS)
    encoder = LandmarkEncoder.from_pretrained(model, document_prompt="text: ", query_prompt="find: ")
    stored = made.get(ids=list("abc"), include=["embeddings"])["embeddings"]
    np.testing.assert_allclose(stored, [d.vector for d in encoder.encode_documents(TEXTS)], atol=1e-5)
    found = made.query(query_texts=["rent"], n_results=3, include=["distances"])
    expected = 1 - np.asarray(stored) @ encoder.encode_query("rent")
    assert made.configuration_json["hnsw"]["space"] == "cosine"
    np.testing.assert_allclose(found["distances"][0], np.sort(expected), atol=1e-5)


def test_weights_load_once_whatever_chroma_builds(
    client: Any, collection: str, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads: list[Path] = []
    real = TorchBackend._loaded

    def counted(self: TorchBackend) -> Any:
        if self._model is None:
            loads.append(self.folder)
        return real(self)

    monkeypatch.setattr(TorchBackend, "_loaded", counted)
    function = LMKEmbeddingFunction(str(model))
    assert loads == []
    for _ in range(5):
        LMKEmbeddingFunction(str(model))
    assert loads == []
    made = client.create_collection(collection, embedding_function=function)
    for i in range(20):
        made.add(ids=[str(i)], documents=[f"text {i}"])
    client.get_collection(collection, embedding_function=LMKEmbeddingFunction(str(model))).query(query_texts=["x"])
    assert loads == [model]


def test_no_collection_stays_behind_when_the_model_is_missing(
    client: Any, collection: str, tmp_path: Path
) -> None:
    with pytest.raises(CheckpointError, match="no model folder"):
        client.create_collection(collection, embedding_function=LMKEmbeddingFunction(str(tmp_path / "nowhere")))
    assert collection not in [each.name for each in client.list_collections()]


def test_a_model_that_changed_is_refused(client: Any, collection: str, model: Path) -> None:
    made = client.create_collection(collection, embedding_function=LMKEmbeddingFunction(str(model)))
    made.add(ids=list("abc"), documents=TEXTS)
    config = LMKEmbeddingFunction(str(model)).get_config()
    other = LMKEmbeddingFunction.build_from_config({**config, "fingerprint": "0" * 64})
    with pytest.raises(FingerprintMismatchError):
        other(TEXTS)
    with pytest.raises(FingerprintMismatchError):
        other.embed_query(input=["x"])


def test_another_model_of_the_same_name_can_be_told(client: Any, collection: str, model: Path) -> None:
    """Chroma compares names only, and uses whatever function it is given; given none, it uses its own."""
    own = LMKEmbeddingFunction(str(model))
    made = client.create_collection(collection, embedding_function=own)
    made.add(ids=list("abc"), documents=TEXTS)
    other = LMKEmbeddingFunction(str(model), query_prompt="something else: ")
    expected = made.query(query_texts=["rent"], n_results=3, include=["distances"])
    found = client.get_collection(collection).query(query_texts=["rent"], n_results=3, include=["distances"])
    assert (found["ids"], found["distances"]) == (expected["ids"], expected["distances"])
    own.check(made)
    with pytest.raises(FingerprintMismatchError, match=other.encoder.fingerprint):
        other.check(client.get_collection(collection, embedding_function=other))
    foreign = client.create_collection(f"{collection}-plain", embedding_function=None)
    with pytest.raises(NotALandmarkCollectionError, match="none"):
        own.check(foreign)


def test_another_process_opens_it_by_name(tmp_path: Path, model: Path) -> None:
    client = chromadb.PersistentClient(str(tmp_path / "db"))
    made = client.create_collection("notes", embedding_function=LMKEmbeddingFunction(str(model)))
    made.add(ids=list("abc"), documents=TEXTS)
    code = (
        "import sys, chromadb, chroma_lmk\n"
        "notes = chromadb.PersistentClient(sys.argv[1]).get_collection('notes')\n"
        "print(notes.query(query_texts=[sys.argv[2]], n_results=1)['ids'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "db"), TEXTS[1]], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == str(made.query(query_texts=[TEXTS[1]], n_results=1)["ids"])


def test_configuration_is_checked(model: Path) -> None:
    config = LMKEmbeddingFunction(str(model)).get_config()
    assert set(config) == {"encoder", "fingerprint"}
    function = LMKEmbeddingFunction.build_from_config(config)
    assert function.get_config() == config and not function.is_legacy()
    with pytest.raises(ConfigError, match="expected a configuration"):
        LMKEmbeddingFunction.validate_config({"model": "x"})
    with pytest.raises(FingerprintMismatchError):
        function.validate_config_update(config, {**config, "fingerprint": "0"})


def test_an_encoder_in_use_is_not_loaded_again(model: Path) -> None:
    encoder = LandmarkEncoder.from_pretrained(model)
    assert LMKEmbeddingFunction.from_encoder(encoder).encoder is encoder
    encoders = _Encoders()
    assert encoders.get(encoders.put(encoder)) is encoder
