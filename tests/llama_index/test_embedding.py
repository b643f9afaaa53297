"""LMKEmbedding: roles, caches, settings, serialisation and concurrency."""

from __future__ import annotations

import asyncio
import copy
import json
import pickle
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from llama_index.core import MockEmbedding, Settings, VectorStoreIndex
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.ingestion import IngestionPipeline
from llama_index.core.schema import TextNode
from llama_index.core.storage.kvstore import SimpleKVStore
from pydantic import ValidationError

from heartbeat import Heartbeat
from llama_index.embeddings.lmk import LMKEmbedding
from lmk_embed import CheckpointError, LandmarkConfig, LandmarkEncoder

Counted = Callable[..., tuple[LMKEmbedding, Any]]

PROMPTS = {"query_prompt": "query: ", "document_prompt": "passage: "}


def test_vectors_are_those_of_the_encoder(embedding: LMKEmbedding, tiny_model: Path) -> None:
    encoder = LandmarkEncoder.from_pretrained(tiny_model, granularity=16)
    text = "Rent is due on the third. " * 20
    assert isinstance(embedding, BaseEmbedding)
    np.testing.assert_allclose(embedding.get_text_embedding(text), encoder.encode_document(text).vector, atol=1e-6)
    np.testing.assert_allclose(embedding.get_query_embedding("rent?"), encoder.encode_query("rent?"), atol=1e-6)
    assert all(type(value) is float for value in embedding.get_query_embedding("rent?"))


def test_batches_keep_their_order_whatever_their_size(tiny_model: Path) -> None:
    texts = [f"text {n} " * (n % 7 + 1) for n in range(30)]
    small = LMKEmbedding(model_name=str(tiny_model), embed_batch_size=4)
    large = LMKEmbedding(model_name=str(tiny_model), embed_batch_size=1000)
    np.testing.assert_allclose(
        small.get_text_embedding_batch(texts), large.get_text_embedding_batch(texts), atol=1e-5
    )


def test_settings_embed_model_serves_an_index(embedding: LMKEmbedding) -> None:
    Settings.embed_model = embedding
    index = VectorStoreIndex([TextNode(text="apples and pears"), TextNode(text="engines")])
    found = index.as_retriever(similarity_top_k=2).retrieve("pears and apples")
    assert {hit.text for hit in found} == {"apples and pears", "engines"}


def test_saved_prompts_are_applied_and_an_empty_one_switches_off(tiny_model: Path, tmp_path: Path) -> None:
    LandmarkEncoder.from_pretrained(tiny_model, **PROMPTS).save_pretrained(tmp_path / "saved")
    saved = LMKEmbedding(model_name=str(tmp_path / "saved"))
    assert (saved.query_prompt, saved.document_prompt) == ("query: ", "passage: ")
    off = LMKEmbedding(model_name=str(tmp_path / "saved"), query_prompt="", document_prompt="")
    assert not np.allclose(saved.get_query_embedding("Paris"), saved.get_text_embedding("Paris"), atol=1e-3)
    assert not np.allclose(saved.get_query_embedding("Paris"), off.get_query_embedding("Paris"), atol=1e-3)
    assert saved.to_dict() != off.to_dict()


class TestNothingToEmbed:
    def test_empty_list(self, embedding: LMKEmbedding) -> None:
        assert embedding.get_text_embedding_batch([]) == []

    @pytest.mark.parametrize("text", ["", "  \n"])
    def test_blank_text(self, embedding: LMKEmbedding, text: str) -> None:
        vector = embedding.get_text_embedding(text)
        assert len(vector) == 32
        assert np.isfinite(vector).all()

    async def test_bare_string(self, embedding: LMKEmbedding) -> None:
        with pytest.raises(TypeError, match="put it into a list"):
            embedding.get_text_embedding_batch("ab")  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="put it into a list"):
            await embedding.aget_text_embedding_batch("ab")  # type: ignore[arg-type]

    def test_none(self, embedding: LMKEmbedding) -> None:
        with pytest.raises(TypeError, match="text 1 must be a string, got NoneType"):
            embedding.get_text_embedding_batch(["a", None])  # type: ignore[list-item]


class TestCacheKnowsRoleAndModel:
    def test_a_query_is_not_a_text(self, counted: Counted) -> None:
        embedding, backend = counted(embeddings_cache=SimpleKVStore(), **PROMPTS)
        query, text = embedding.get_query_embedding("Paris"), embedding.get_text_embedding("Paris")
        assert query != text
        passes = backend.passes
        assert embedding.get_query_embedding("Paris") == query
        assert embedding.get_text_embedding_batch(["Paris", "Paris"]) == [text, text]
        assert backend.passes == passes, "cached"

    async def test_async_shares_the_cache(self, counted: Counted) -> None:
        embedding, backend = counted(embeddings_cache=SimpleKVStore(), **PROMPTS)
        query = await embedding.aget_query_embedding("Paris")
        text = await embedding.aget_text_embedding("Paris")
        passes = backend.passes
        assert query != text
        assert embedding.get_query_embedding("Paris") == query
        assert await embedding.aget_text_embedding_batch(["Paris"]) == [text]
        assert backend.passes == passes

    def test_two_models_share_one_store(self, tiny_model: Path) -> None:
        store = SimpleKVStore()
        one = LMKEmbedding(model_name=str(tiny_model), granularity=4, embeddings_cache=store)
        other = LMKEmbedding(model_name=str(tiny_model), granularity=8, embeddings_cache=store)
        text = "one two three four five six seven eight nine"
        assert one.get_text_embedding(text) != other.get_text_embedding(text)

    def test_a_cache_given_later_is_no_trap(self, counted: Counted) -> None:
        embedding, _ = counted(**PROMPTS)
        embedding.embeddings_cache = SimpleKVStore()
        assert embedding.get_query_embedding("Paris") != embedding.get_text_embedding("Paris")

    def test_what_is_no_store_is_refused(self, tiny_model: Path) -> None:
        with pytest.raises((ValidationError, TypeError), match="BaseKVStore"):
            LMKEmbedding(model_name=str(tiny_model), embeddings_cache={})

    def test_the_store_stays_reachable(self, tiny_model: Path) -> None:
        store = SimpleKVStore()
        cache = LMKEmbedding(model_name=str(tiny_model), embeddings_cache=store).embeddings_cache
        cache.put("k", {"v": 1})
        assert cache.store is store
        assert cache.get("k") == {"v": 1} == cache.get_all()["k"]
        assert cache.delete("k")


class TestSettings:
    def test_every_setting_is_a_public_field(self, embedding: LMKEmbedding) -> None:
        names = {field.name for field in fields(LandmarkConfig)} | {"model_name", "revision", "dtype"}
        assert names <= set(LMKEmbedding.model_fields)
        assert names <= set(embedding.to_dict())

    def test_fields_say_what_the_checkpoint_says(self, tiny_model: Path, tmp_path: Path) -> None:
        LandmarkEncoder.from_pretrained(tiny_model, granularity=7, language="de").save_pretrained(tmp_path / "m")
        embedding = LMKEmbedding(model_name=str(tmp_path / "m"), truncate_dim=8)
        assert (embedding.granularity, embedding.language, embedding.max_seq_length) == (7, "de", 512)
        assert len(embedding.get_text_embedding("ja")) == 8

    def test_none_is_a_value(self, tiny_model: Path, tmp_path: Path) -> None:
        LandmarkEncoder.from_pretrained(tiny_model, granularity=7).save_pretrained(tmp_path / "m")
        embedding = LMKEmbedding(model_name=str(tmp_path / "m"), granularity=None)
        assert embedding.granularity is None is embedding.encoder.config.granularity
        assert LMKEmbedding.from_dict(embedding.to_dict()).granularity is None

    @pytest.mark.parametrize(
        ("bad", "message"),
        [
            ({"granularty": 3}, "granularty"),
            ({"granularity": 0}, "at least 1"),
            ({"pooling": "max"}, "span_mean"),
            ({"max_seq_length": 4096}, "max_seq_length=4096, but the model reads at most 512"),
            ({"dtype": None}, "dtype"),
        ],
    )
    def test_what_is_unknown_or_impossible_is_refused(
        self, tiny_model: Path, bad: dict[str, object], message: str
    ) -> None:
        with pytest.raises(ValidationError, match=message):
            LMKEmbedding(model_name=str(tiny_model), **bad)

    def test_a_missing_model_is_refused_at_once(self, tmp_path: Path) -> None:
        with pytest.raises(CheckpointError, match="no model folder"):
            LMKEmbedding(model_name=str(tmp_path / "nowhere"))

    def test_a_setting_does_not_change_under_an_index(self, embedding: LMKEmbedding) -> None:
        with pytest.raises(ValidationError, match="frozen"):
            embedding.granularity = 4

    def test_payload_is_for_the_eyes_of_tracing(self, embedding: LMKEmbedding) -> None:
        payload = embedding.to_payload()
        assert payload["granularity"] == 16
        json.dumps(payload)


class TestSerialisation:
    def test_dict_and_json_round_trip(self, tiny_model: Path) -> None:
        embedding = LMKEmbedding(model_name=str(tiny_model), granularity=4, embeddings_cache=SimpleKVStore())
        data = embedding.to_dict()
        for again in (
            LMKEmbedding.from_dict(data),
            LMKEmbedding.from_dict(json.loads(json.dumps(data))),
            LMKEmbedding.from_json(embedding.to_json()),
        ):
            assert again.to_dict() == data
            assert again.get_text_embedding("a b c d e") == embedding.get_text_embedding("a b c d e")
        assert LMKEmbedding.from_dict(data, granularity=8).granularity == 8

    def test_running_code_of_a_model_is_not_for_a_dictionary_to_allow(self, tiny_model: Path) -> None:
        embedding = LMKEmbedding(model_name=str(tiny_model), trust_remote_code=True)
        assert "trust_remote_code" not in embedding.to_dict()

    def test_new_weights_in_an_old_folder_are_noticed(self, tiny_model: Path, tmp_path: Path) -> None:
        LandmarkEncoder.from_pretrained(tiny_model).save_pretrained(tmp_path / "m")
        before = LMKEmbedding(model_name=str(tmp_path / "m"))
        told = before.to_dict()
        model = before.encoder._backend.model()  # type: ignore[attr-defined]
        model.embeddings.word_embeddings.weight.data += 0.1
        model.save_pretrained(tmp_path / "m")
        after = LMKEmbedding(model_name=str(tmp_path / "m")).to_dict()
        assert {key for key in told if told[key] != after[key]} == {"fingerprint"}

    def test_pickle_is_small_and_reads_nothing(
        self, embedding: LMKEmbedding, caplog: pytest.LogCaptureFixture
    ) -> None:
        vector = embedding.get_text_embedding("text")
        data = pickle.dumps(embedding)
        assert len(data) < 10_000
        assert not caplog.records, "nothing had to be left out"
        again = pickle.loads(data)
        assert again._handle._encoder is None
        assert again.get_text_embedding("text") == vector

    def test_pickle_keeps_what_a_dictionary_does_not(self, tiny_model: Path) -> None:
        embedding = LMKEmbedding(model_name=str(tiny_model), trust_remote_code=True, num_workers=2)
        again = pickle.loads(pickle.dumps(embedding))
        assert (again.trust_remote_code, again.num_workers) == (True, 2)

    def test_copies_share_the_weights(self, embedding: LMKEmbedding) -> None:
        assert copy.deepcopy(embedding).encoder is embedding.encoder
        assert embedding.model_copy(deep=True).encoder is embedding.encoder

    def test_a_relative_folder_is_found_from_elsewhere(
        self, tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tiny_model.parent)
        data = pickle.dumps(LMKEmbedding(model_name=tiny_model.name))
        monkeypatch.chdir(tmp_path)
        assert len(pickle.loads(data).get_text_embedding("text")) == 32

    def test_from_encoder_shares_weights_and_settings(self, tiny_model: Path) -> None:
        encoder = LandmarkEncoder.from_pretrained(tiny_model, granularity=5)
        embedding = LMKEmbedding.from_encoder(encoder, embed_batch_size=7)
        assert embedding.encoder is encoder
        assert (embedding.granularity, embedding.embed_batch_size) == (5, 7)
        assert pickle.loads(pickle.dumps(embedding)).to_dict() == embedding.to_dict()


class TestIngestion:
    def test_a_changed_setting_is_no_cache_hit(self, tiny_model: Path) -> None:
        text = "one two three four five six seven eight nine ten"
        vectors = []
        pipeline = IngestionPipeline(transformations=[MockEmbedding(embed_dim=4)])
        for granularity in (2, 4, 2):
            pipeline.transformations = [LMKEmbedding(model_name=str(tiny_model), granularity=granularity)]
            vectors.append(pipeline.run(nodes=[TextNode(text=text, id_="a")])[0].embedding)
        assert vectors[0] != vectors[1]
        assert vectors[0] == vectors[2]


class TestEventLoop:
    async def test_stays_alive_with_one_forward_at_a_time(self, counted: Counted) -> None:
        embedding, backend = counted()
        embedding.embed_batch_size = 8
        embedding.get_text_embedding("warm")
        backend.pause, backend.passes = 0.04, 0
        texts = [f"text number {n}" for n in range(200)]
        async with Heartbeat() as pulse:
            found = await embedding.aget_text_embedding_batch(texts)
        assert backend.passes == 25
        assert backend.at_once == 1
        assert pulse.beats > 2 * backend.passes
        assert found == embedding.get_text_embedding_batch(texts)

    async def test_cancelling_stops_further_passes(self, counted: Counted) -> None:
        embedding, backend = counted()
        embedding.embed_batch_size = 1
        embedding.get_text_embedding("warm")
        backend.pause, backend.passes = 0.05, 0
        task = asyncio.create_task(embedding.aget_text_embedding_batch(["text"] * 50))
        await asyncio.sleep(0.12)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(0.3)
        assert backend.passes < 10

    async def test_sync_calls_inside_a_running_loop(self, embedding: LMKEmbedding) -> None:
        assert embedding.get_query_embedding("q") == await embedding.aget_query_embedding("q")
        assert embedding.get_text_embedding("t") == await embedding.aget_text_embedding("t")
