"""Checkpoints: where they come from, what they say about themselves, and what is refused."""

from __future__ import annotations

import copy
import json
import pickle
import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lmk_embed import CheckpointError, ConfigError, LandmarkConfig, LandmarkEncoder
from lmk_embed.models import default_checkpoint
from lmk_embed.results import unit


@pytest.fixture
def model(tiny_model: Path, tmp_path: Path) -> Path:
    """Return a copy that a test may change."""
    return Path(shutil.copytree(tiny_model, tmp_path / "model"))


def write(path: Path, value: Any) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(value))


def sentence_transformers_files(model: Path, pooling: dict[str, Any], **published: Any) -> None:
    kinds = {"": "Transformer", "1_Pooling": "Pooling", "2_Normalize": "Normalize"}
    write(
        model / "modules.json",
        [
            {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
            for i, (path, kind) in enumerate(kinds.items())
        ],
    )
    write(model / "1_Pooling" / "config.json", pooling)
    write(model / "config_sentence_transformers.json", published)
    write(model / "sentence_bert_config.json", {"max_seq_length": 128, "do_lower_case": False})


class TestSentenceTransformersFolder:
    def test_prompts_pooling_and_length_are_read(self, model: Path) -> None:
        prompts = {"query": "find: ", "passage": "text: ", "clustering": "group: "}
        sentence_transformers_files(model, {"pooling_mode_cls_token": True}, prompts=prompts)
        config = LandmarkEncoder.from_pretrained(model).config
        assert (config.query_prompt, config.document_prompt) == ("find: ", "text: ")
        assert (config.base_pooling, config.max_seq_length) == ("cls", 128)
        assert config.pooling == "span_mean"

    def test_default_prompt_is_for_both_roles(self, model: Path) -> None:
        sentence_transformers_files(
            model, {"pooling_mode": "lasttoken"}, prompts={"all": "x: "}, default_prompt_name="all"
        )
        config = LandmarkEncoder.from_pretrained(model).config
        assert config.query_prompt == config.document_prompt == "x: "
        assert config.base_pooling == "lasttoken"

    def test_an_empty_prompt_switches_a_saved_one_off(self, model: Path) -> None:
        sentence_transformers_files(model, {"pooling_mode_mean_tokens": True}, prompts={"query": "find: "})
        saved = LandmarkEncoder.from_pretrained(model)
        off = LandmarkEncoder.from_pretrained(model, query_prompt="")
        assert np.abs(saved.encode_query("Paris") - off.encode_query("Paris")).max() > 1e-3
        np.testing.assert_allclose(off.encode_query("Paris"), off.encode_document("Paris").vector, atol=1e-6)

    @pytest.mark.parametrize("pooling", ["mean", "cls", "lasttoken"])
    @pytest.mark.parametrize("include_prompt", [True, False])
    def test_short_texts_get_the_published_vectors(self, model: Path, pooling: str, include_prompt: bool) -> None:
        from sentence_transformers import SentenceTransformer

        keys = {"mean": "mean_tokens", "cls": "cls_token", "lasttoken": "lasttoken"}
        sentence_transformers_files(
            model,
            {
                "word_embedding_dimension": 32,
                "include_prompt": include_prompt,
                **{f"pooling_mode_{key}": name == pooling for name, key in keys.items()},
            },
            prompts={"query": "find: ", "document": "text: "},
        )
        published = SentenceTransformer(str(model), device="cpu")
        texts = ["How large is the deposit?", "Paris", "the quick brown fox jumps over the lazy dog"]
        ours = LandmarkEncoder.from_pretrained(model)
        np.testing.assert_allclose(ours.encode_queries(texts), published.encode_query(texts), atol=1e-5)
        alone = LandmarkEncoder.from_pretrained(model, pooling=pooling)
        vectors = [doc.vector for doc in alone.encode_documents(texts)]
        np.testing.assert_allclose(vectors, published.encode_document(texts), atol=1e-5)

    def test_modules_that_are_not_applied_are_named(self, model: Path) -> None:
        sentence_transformers_files(model, {"pooling_mode_mean_tokens": True})
        modules = json.loads((model / "modules.json").read_text())
        write(
            model / "modules.json", [*modules, {"path": "3_Dense", "type": "sentence_transformers.models.Dense"}]
        )
        with pytest.warns(UserWarning, match="'Dense' that lmk-embed does not apply"):
            LandmarkEncoder.from_pretrained(model)
        sentence_transformers_files(model, {"pooling_mode_max_tokens": True})
        with pytest.warns(UserWarning, match="pools in a way"):
            LandmarkEncoder.from_pretrained(model)


class TestRefused:
    def test_pickled_weights(self, model: Path) -> None:
        (model / "model.safetensors").unlink()
        torch.save({}, model / "pytorch_model.bin")
        with pytest.raises(CheckpointError, match=r"only pickled weights \(pytorch_model.bin\).*safetensors"):
            LandmarkEncoder.from_pretrained(model)

    def test_no_weights_or_no_model(self, model: Path, tmp_path: Path) -> None:
        (model / "model.safetensors").unlink()
        with pytest.raises(CheckpointError, match="has no weights"):
            LandmarkEncoder.from_pretrained(model)
        (tmp_path / "empty").mkdir()
        with pytest.raises(CheckpointError, match=r"has no config\.json"):
            LandmarkEncoder.from_pretrained(tmp_path / "empty")
        with pytest.raises(CheckpointError, match="no model folder at"):
            LandmarkEncoder.from_pretrained(tmp_path / "nowhere")
        with pytest.raises(CheckpointError, match="name is empty"):
            LandmarkEncoder.from_pretrained(" ")
        with pytest.raises(CheckpointError, match="is a file"):
            LandmarkEncoder.from_pretrained(model / "config.json")

    def test_hub_id_without_network(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
        with pytest.raises(CheckpointError, match=r"'org/model' is neither a folder.*bundled default"):
            LandmarkEncoder.from_pretrained("org/model")

    def test_weights_that_belong_to_another_config(self, model: Path) -> None:
        config = json.loads((model / "config.json").read_text())
        write(model / "config.json", config | {"num_hidden_layers": 3})
        with pytest.raises(CheckpointError, match=r"lack 16 parameters.*encoder\.layer\.2"):
            LandmarkEncoder.from_pretrained(model).encode_query("x")

    def test_damaged_weights_and_settings(self, model: Path) -> None:
        (model / "model.safetensors").write_bytes(b"broken")
        with pytest.raises(CheckpointError, match="does not load"):
            LandmarkEncoder.from_pretrained(model).encode_query("x")
        for text, match in (
            ("{", "not valid JSON"),
            ("[]", "JSON object"),
            ('{"version": 99}', "layout version 99"),
        ):
            (model / "lmk_config.json").write_text(text)
            with pytest.raises(ConfigError, match=match):
                LandmarkEncoder.from_pretrained(model)

    @pytest.mark.parametrize(
        ("settings", "match"),
        [
            ({"granularty": 3}, "did you mean 'granularity'"),
            ({"granularity": 0}, "at least 1"),
            ({"granularity": True}, "at least 1"),
            ({"pooling": "max"}, "must be one of 'landmark'"),
            ({"max_seq_length": 1024}, "max_seq_length=1024, but the model reads at most 512"),
            ({"truncate_dim": 33}, "truncate_dim=33 is more than the model's 32"),
            ({"overlap": 600}, "overlap=600 must be smaller than the row of 512"),
            ({"pooling": "mean", "context": "blend"}, 'context="blend" needs chunks'),
            ({"landmark_token": "[LMK]"}, r"'\[LMK\]' is not in the tokenizer's vocabulary"),
            ({"query_prompt": None}, "must be a string"),
            ({"neighbour_weight": 1.5}, "a number from 0 to 1, got 1.5"),
            ({"neighbour_weight": True}, "a number from 0 to 1, got True"),
            ({"batch_tokens": 0}, "batch_tokens must be at least 1"),
            ({"boundaries": "code", "language": "cobol"}, "pip install tree-sitter-cobol"),
        ],
    )
    def test_settings_that_cannot_be(self, tiny_model: Path, settings: dict[str, Any], match: str) -> None:
        with pytest.raises((ConfigError, ImportError), match=match):
            LandmarkEncoder.from_pretrained(tiny_model, **settings).encode_document("x = 1")

    @pytest.mark.parametrize(("option", "match"), [("device", "device 'tpu9'"), ("dtype", "dtype 'int8'")])
    def test_device_and_dtype(self, tiny_model: Path, option: str, match: str) -> None:
        value = {"device": "tpu9", "dtype": "int8"}[option]
        encoder = LandmarkEncoder.from_pretrained(tiny_model, **{option: value})
        with pytest.raises(ConfigError, match=match):
            encoder.encode_query("x")


class TestSaving:
    def test_round_trip_keeps_vectors_settings_and_fingerprint(self, model: Path, tmp_path: Path) -> None:
        encoder = LandmarkEncoder.from_pretrained(
            model, granularity=16, boundaries="markdown", truncate_dim=8, document_prompt="text: "
        )
        encoder.save_pretrained(tmp_path / "saved")
        again = LandmarkEncoder.from_pretrained(tmp_path / "saved")
        assert again.config == encoder.config and again.fingerprint == encoder.fingerprint
        text = "# Rent\n\nThe rent is due on the first.\n" * 20
        np.testing.assert_array_equal(again.encode_document(text).states, encoder.encode_document(text).states)
        assert again.dimension == 8 == again.encode_document(text).vector.shape[0]
        again.save_pretrained(tmp_path / "saved")  # a checkpoint may be replaced, its own included
        assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "saved"]

    def test_a_saved_overlap_goes_with_the_saved_length_of_rows(self, model: Path, tmp_path: Path) -> None:
        LandmarkEncoder.from_pretrained(model).save_pretrained(tmp_path / "saved")
        overlaps = [
            LandmarkEncoder.from_pretrained(tmp_path / "saved", **settings).config.overlap
            for settings in (
                {},
                {"max_seq_length": 512},
                {"max_seq_length": 32},
                {"max_seq_length": 32, "overlap": 5},
            )
        ]
        assert overlaps == [128, 128, 8, 5]

    def test_the_same_weights_elsewhere_are_the_same(self, model: Path, tmp_path: Path) -> None:
        copy = shutil.copytree(model, tmp_path / "copy")
        one, other = LandmarkEncoder.from_pretrained(model), LandmarkEncoder.from_pretrained(copy)
        assert one.fingerprint == other.fingerprint
        assert one.fingerprint != LandmarkEncoder.from_pretrained(model, dtype="bfloat16").fingerprint

    def test_the_same_weights_used_differently_are_not(self, model: Path) -> None:
        before = LandmarkEncoder.from_pretrained(model).fingerprint
        config = json.loads((model / "config.json").read_text())
        label = {"transformers_version": "4.0.0", "architectures": ["BertForMaskedLM"]}
        write(model / "config.json", config | label)
        assert LandmarkEncoder.from_pretrained(model).fingerprint == before
        write(model / "config.json", config | {"hidden_act": "relu"})
        assert LandmarkEncoder.from_pretrained(model).fingerprint != before

    def test_nothing_else_is_overwritten_and_nothing_half_written_stays(
        self, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        encoder = LandmarkEncoder.from_pretrained(model)
        (tmp_path / "papers").mkdir()
        (tmp_path / "papers" / "thesis.txt").write_text("years of work")
        with pytest.raises(CheckpointError, match="is not a checkpoint"):
            encoder.save_pretrained(tmp_path / "papers")
        monkeypatch.setattr(LandmarkConfig, "to_json", lambda _: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            encoder.save_pretrained(tmp_path / "new")
        assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "papers"]

    def test_pickles_and_copies_are_small_and_the_same(self, model: Path) -> None:
        encoder = LandmarkEncoder.from_pretrained(model, granularity=16, batch_tokens=99)
        stored = pickle.dumps(encoder)
        assert len(stored) < 10_000
        for again in (pickle.loads(stored), copy.deepcopy(encoder)):
            assert again.fingerprint == encoder.fingerprint
        assert "granularity=16" in repr(encoder)

    def test_a_recipe_builds_the_same_encoder(self, model: Path) -> None:
        encoder = LandmarkEncoder.from_pretrained(model, granularity=16)
        recipe = json.loads(json.dumps(encoder.to_dict()))
        assert LandmarkEncoder.from_dict(recipe).fingerprint == encoder.fingerprint


def test_dimension_and_limits_need_no_weights(model: Path) -> None:
    (model / "model.safetensors").write_bytes(b"not read")
    encoder = LandmarkEncoder.from_pretrained(model)
    assert (encoder.dimension, encoder.max_seq_length) == (32, 512)


@pytest.mark.parametrize("settings", [{"context": "window"}, {"context": "blend"}, {"pooling": "mean"}])
def test_neighbours_are_added_within_a_document(tiny_model: Path, settings: dict[str, Any]) -> None:
    settings = {"granularity": 16, "max_seq_length": 64, **settings}
    texts = ["The deposit is three months of rent. " * 30, "One chunk.", ""]
    plain = LandmarkEncoder.from_pretrained(tiny_model, **settings)
    mixed = LandmarkEncoder.from_pretrained(tiny_model, neighbour_weight=0.3, **settings)
    assert plain.fingerprint != mixed.fingerprint
    for before, after in zip(plain.encode_documents(texts), mixed.encode_documents(texts), strict=True):
        states = before.states
        expected = states.copy()
        for at in range(len(states)):
            for beside in (at - 1, at + 1):
                if 0 <= beside < len(states):
                    expected[at] += 0.3 * states[beside]
        np.testing.assert_allclose(after.states, expected, atol=1e-5)
        vector = unit(expected.mean(axis=0)) if len(expected) else before.vector
        np.testing.assert_allclose(after.vector, vector, atol=1e-5)


def test_a_pooling_of_whole_rows_leaves_the_neighbours_of_the_checkpoint_out() -> None:
    assert LandmarkEncoder.from_pretrained().config.neighbour_weight == 0.3
    assert LandmarkEncoder.from_pretrained(pooling="mean").config.neighbour_weight == 0
    assert LandmarkEncoder.from_pretrained(pooling="mean", neighbour_weight=0.2).config.neighbour_weight == 0.2


def test_landmark_pooling_on_an_untrained_model_warns_once(tiny_model: Path) -> None:
    with pytest.warns(UserWarning, match="not trained with landmarks") as seen:
        encoder = LandmarkEncoder.from_pretrained(tiny_model, pooling="landmark")
        encoder.encode_document("one")
        encoder.encode_document("two")
    assert len(seen) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert LandmarkEncoder.from_pretrained(tiny_model).config.pooling == "span_mean"


def test_bundled_model_gives_known_vectors() -> None:
    """Canonical values: a change here is a change of vectors and needs a changelog entry."""
    encoder = LandmarkEncoder.from_pretrained()
    query = encoder.encode_query("How large is the deposit?")
    doc = encoder.encode_document("The deposit is three months of rent. " * 8)
    assert default_checkpoint()[0].is_dir()
    np.testing.assert_allclose(query[:4], CANONICAL_QUERY, atol=2e-5)
    np.testing.assert_allclose(doc.vector[:4], CANONICAL_DOCUMENT, atol=2e-5)
    assert [chunk.n_tokens for chunk in doc.chunks] == [64]
    first, second = encoder.encode_document("The deposit is three months of rent. Dogs are allowed. " * 8).chunks
    np.testing.assert_allclose([*first.vector[:2], *second.vector[:2]], CANONICAL_CHUNKS, atol=2e-5)


CANONICAL_QUERY = [0.113221, 0.043831, -0.050468, 0.054973]
CANONICAL_DOCUMENT = [0.076001, -0.037186, -0.024232, 0.032592]
CANONICAL_CHUNKS = [0.073624, -0.03949, 0.074036, -0.03512]
