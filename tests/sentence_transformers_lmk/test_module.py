"""LandmarkTransformer: the encoder's vectors in Sentence Transformers, through saving, training and evaluation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.losses.merged_forward import column_merging_disabled, merge_feature_batches
from sentence_transformers.sentence_transformer.evaluation import InformationRetrievalEvaluator
from sentence_transformers.sentence_transformer.losses import (
    CachedMultipleNegativesRankingLoss,
    MultipleNegativesRankingLoss,
)

from lmk_embed import ConfigError, LandmarkEncoder
from sentence_transformers_lmk import LandmarkTransformer, save_sentence_transformer, to_sentence_transformer

TRAINED = {"pooling": "landmark", "context": "window", "landmark_trained": True}
TEXTS = [
    "Rent is due on the third working day. " * 40,
    "short",
    "",
    "A literal [SEP] is text. Grüße aus Köln, 東京. " * 5,
    "one two three",
]


@pytest.fixture(scope="module")
def encoder(tiny_model: Path) -> LandmarkEncoder:
    return LandmarkEncoder.from_pretrained(tiny_model, granularity=8, max_seq_length=64, **TRAINED)


@pytest.fixture
def model(encoder: LandmarkEncoder) -> SentenceTransformer:
    return to_sentence_transformer(encoder, device="cpu")


def document_vectors(encoder: LandmarkEncoder, texts: list[str] = TEXTS) -> np.ndarray:
    return np.stack([document.vector for document in encoder.encode_documents(texts)])


class TestSameVectors:
    @pytest.mark.parametrize(
        "settings",
        [
            TRAINED,
            {"pooling": "span_mean", "context": "blend"},
            {"pooling": "span_mean", "base_pooling": "cls"},
            {"pooling": "multi_cls"},
            {"pooling": "mean"},
            {**TRAINED, "neighbour_weight": 0.4},
            {"pooling": "span_mean", "context": "blend", "neighbour_weight": 0.4},
            {**TRAINED, "truncate_dim": 8, "boundaries": "fixed"},
            {**TRAINED, "query_prompt": "query: ", "document_prompt": "passage: "},
            {"pooling": "span_mean", "document_prompt": "passage: ", "include_prompt": False},
        ],
        ids=lambda settings: "-".join(str(value) for value in settings.values()),
    )
    def test_as_the_encoder_whatever_the_settings(self, tiny_model: Path, settings: dict[str, Any]) -> None:
        encoder = LandmarkEncoder.from_pretrained(tiny_model, granularity=8, max_seq_length=64, **settings)
        model = to_sentence_transformer(encoder, device="cpu")
        assert model.get_embedding_dimension() == encoder.dimension
        for batch_size in (1, 2, 32):
            found = model.encode_document(TEXTS, batch_size=batch_size)
            np.testing.assert_allclose(found, document_vectors(encoder), atol=1e-5)
        np.testing.assert_allclose(model.encode_query(TEXTS), encoder.encode_queries(TEXTS), atol=1e-5)

    def test_a_long_document_is_read_to_its_end(self, model: SentenceTransformer) -> None:
        long = "alpha " * 400
        one, other = model.encode_document([long, long + " totally different ending"])
        assert np.abs(one - other).max() > 1e-4
        assert model.preprocess([long])["row_lengths"].shape[1] > 5

    def test_truncation_is_seen(self, encoder: LandmarkEncoder, tiny_model: Path) -> None:
        cut = LandmarkEncoder.from_pretrained(tiny_model, max_seq_length=64, overflow="truncate", **TRAINED)
        with pytest.warns(UserWarning, match="more than fit into one row of 64"):
            found = to_sentence_transformer(cut, device="cpu").encode_document(TEXTS[:1])
        with pytest.warns(UserWarning):
            np.testing.assert_allclose(found, document_vectors(cut, TEXTS[:1]), atol=1e-5)

    def test_prompts_of_the_call_replace_the_saved_ones(self, tiny_model: Path) -> None:
        saved = LandmarkEncoder.from_pretrained(tiny_model, document_prompt="passage: ", **TRAINED)
        other = LandmarkEncoder.from_pretrained(tiny_model, document_prompt="other: ", **TRAINED)
        plain = LandmarkEncoder.from_pretrained(tiny_model, **TRAINED)
        model = to_sentence_transformer(saved, device="cpu")
        assert model.prompts["document"] == "passage: "
        np.testing.assert_allclose(
            model.encode_document(TEXTS, prompt="other: "), document_vectors(other), atol=1e-5
        )
        np.testing.assert_allclose(model.encode(TEXTS), document_vectors(plain), atol=1e-5)

    def test_the_bundled_model(self) -> None:
        encoder = LandmarkEncoder.from_pretrained()
        model = SentenceTransformer(modules=[LandmarkTransformer.from_pretrained()], device="cpu")
        texts = ["The deposit is three months of rent. " * 60, "Rent"]
        np.testing.assert_allclose(model.encode_document(texts), document_vectors(encoder, texts), atol=1e-5)
        np.testing.assert_allclose(model.encode_query(texts), encoder.encode_queries(texts), atol=1e-5)

    def test_only_strings(self, model: SentenceTransformer) -> None:
        with pytest.raises((TypeError, ValueError)):
            model.encode([None])  # type: ignore[list-item]


class TestFolders:
    def test_both_read_what_is_saved(self, encoder: LandmarkEncoder, tmp_path: Path) -> None:
        save_sentence_transformer(encoder, tmp_path / "m")
        (module,) = json.loads((tmp_path / "m" / "modules.json").read_text())
        assert module["type"].startswith("sentence_transformers_lmk.")
        model = SentenceTransformer(str(tmp_path / "m"), trust_remote_code=True, device="cpu")
        np.testing.assert_allclose(model.encode_document(TEXTS), document_vectors(encoder), atol=1e-5)
        again = LandmarkEncoder.from_pretrained(tmp_path / "m")
        assert again.fingerprint == encoder.fingerprint
        assert model.max_seq_length == 64

    def test_prompts_survive(self, tiny_model: Path, tmp_path: Path) -> None:
        prompts = {"query_prompt": "query: ", "document_prompt": "passage: "}
        encoder = LandmarkEncoder.from_pretrained(tiny_model, **prompts, **TRAINED)
        save_sentence_transformer(encoder, tmp_path / "m")
        model = SentenceTransformer(str(tmp_path / "m"), trust_remote_code=True, device="cpu")
        np.testing.assert_allclose(model.encode_query(TEXTS), encoder.encode_queries(TEXTS), atol=1e-5)
        np.testing.assert_allclose(model.encode_document(TEXTS), document_vectors(encoder), atol=1e-5)

    def test_code_is_not_run_unasked(self, encoder: LandmarkEncoder, tmp_path: Path) -> None:
        save_sentence_transformer(encoder, tmp_path / "m")
        with pytest.raises(ValueError, match="trust_remote_code"):
            SentenceTransformer(str(tmp_path / "m"), device="cpu")

    def test_model_kwargs(self, encoder: LandmarkEncoder, tmp_path: Path) -> None:
        save_sentence_transformer(encoder, tmp_path / "m")
        half = SentenceTransformer(
            str(tmp_path / "m"), trust_remote_code=True, device="cpu", model_kwargs={"dtype": torch.bfloat16}
        )
        assert half.dtype == torch.bfloat16
        assert half.encode_document(TEXTS).dtype == np.float32
        with pytest.raises(ConfigError, match="device_map"):
            LandmarkTransformer.load(str(tmp_path / "m"), model_kwargs={"device_map": "auto"})

    def test_weights_are_safetensors_only(self, model: SentenceTransformer, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="safetensors"):
            model.save_pretrained(str(tmp_path / "m"), safe_serialization=False)


class TestMaxSeqLength:
    def test_changes_rows_not_what_is_read(self, model: SentenceTransformer, tiny_model: Path) -> None:
        model.max_seq_length = 32
        short = LandmarkEncoder.from_pretrained(tiny_model, granularity=8, max_seq_length=32, **TRAINED)
        np.testing.assert_allclose(model.encode_document(TEXTS), document_vectors(short), atol=1e-5)
        with pytest.raises(ConfigError, match="max_seq_length=1024"):
            model.max_seq_length = 1024


class TestTraining:
    def test_gradients_flow_through_the_landmarks(self, model: SentenceTransformer) -> None:
        model.train()
        loss = MultipleNegativesRankingLoss(model)
        features = [model.preprocess(texts) for texts in (["rent", "dogs"], [TEXTS[0], "Dogs are allowed."])]
        before = {name: p.detach().clone() for name, p in model.named_parameters()}
        loss(features, torch.tensor([0, 1])).backward()
        torch.optim.SGD(model.parameters(), lr=0.1).step()
        moved = {name for name, p in model.named_parameters() if not torch.equal(before[name], p)}
        assert any("layer.0" in name for name in moved)
        assert any("word_embeddings" in name for name in moved)

    def test_losses_that_slice_batches_see_whole_documents(self, model: SentenceTransformer) -> None:
        model.eval()  # dropout would draw other masks for other batches
        features = [model.preprocess(texts) for texts in (["rent", "dogs", "sep"], [TEXTS[0], TEXTS[4], TEXTS[3]])]
        sliced = CachedMultipleNegativesRankingLoss(model, mini_batch_size=1)
        whole = MultipleNegativesRankingLoss(model)
        labels = torch.arange(3)
        one, other = sliced([dict(f) for f in features], labels), whole([dict(f) for f in features], labels)
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)

    def test_losses_that_combine_columns_see_each_text_alone(self, model: SentenceTransformer) -> None:
        """Short queries and long documents go through one forward pass, padded to the longest with zeros."""
        model.eval()
        columns = [model.preprocess(texts) for texts in (["a query", "another"], [TEXTS[0], TEXTS[3]])]
        loss = MultipleNegativesRankingLoss(model)
        combined = loss(columns, None)
        with column_merging_disabled():
            separate = loss(columns, None)
        assert merge_feature_batches(columns) is not None
        torch.testing.assert_close(combined, separate, atol=1e-5, rtol=1e-5)

    def test_the_encoder_keeps_its_weights(self, encoder: LandmarkEncoder) -> None:
        before = document_vectors(encoder)
        model = to_sentence_transformer(encoder, device="cpu")
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.1)
        np.testing.assert_array_equal(document_vectors(encoder), before)

    def test_a_trained_model_becomes_an_encoder(self, model: SentenceTransformer, tmp_path: Path) -> None:
        with torch.no_grad():
            next(model.parameters()).mul_(1.5)
        model.save_pretrained(str(tmp_path / "m"), create_model_card=False)
        encoder = LandmarkEncoder.from_pretrained(tmp_path / "m")
        assert encoder.config.landmark_trained
        np.testing.assert_allclose(document_vectors(encoder), model.encode_document(TEXTS), atol=1e-5)

    def test_chunks_come_in_the_order_of_the_texts(self, encoder: LandmarkEncoder) -> None:
        model = to_sentence_transformer(encoder, device="cpu")
        model.eval()
        with torch.no_grad():
            out = model(model.preprocess(TEXTS))
        expected = [document.states for document in encoder.encode_documents(TEXTS) if document.chunks]
        kept = np.repeat([text != "" for text in TEXTS], out["chunk_counts"])
        np.testing.assert_allclose(out["chunk_embeddings"][kept], np.concatenate(expected), atol=1e-5)

    def test_chunks_have_their_neighbours(self, tiny_model: Path) -> None:
        encoder = LandmarkEncoder.from_pretrained(
            tiny_model, granularity=8, max_seq_length=64, neighbour_weight=0.3, **TRAINED
        )
        model = to_sentence_transformer(encoder, device="cpu").eval()
        texts = [text for text in TEXTS if text]
        with torch.no_grad():
            out = model(model.preprocess(texts))
        expected = np.concatenate([document.states for document in encoder.encode_documents(texts)])
        np.testing.assert_allclose(out["chunk_embeddings"], expected, atol=1e-5)

    def test_each_text_draws_its_own_granularity_and_always_the_same(self, model: SentenceTransformer) -> None:
        module = model[0]
        assert isinstance(module, LandmarkTransformer)
        module.granularities = (4, 8, 16)
        texts = [f"number {n} " * 20 for n in range(12)]
        fixed = model.eval().preprocess(texts)["segments"][..., 0].count_nonzero(1)
        model.train()
        drawn = model.preprocess(texts)["segments"][..., 0].count_nonzero(1)
        assert len(set(drawn.tolist())) == 3
        assert fixed.tolist() == [5] * 12
        again = model.preprocess(texts[::-1])["segments"][..., 0].count_nonzero(1)
        assert drawn.tolist() == again.tolist()[::-1]

    def test_shorter_rows_for_training(self, model: SentenceTransformer) -> None:
        features = model.preprocess([TEXTS[0]], max_length=16)
        assert features["row_lengths"].max() <= 16
        assert features["sentence_embedding" if "sentence_embedding" in features else "input_ids"].shape[0] == 1


def test_information_retrieval_evaluator(model: SentenceTransformer) -> None:
    corpus = {"a": TEXTS[0], "b": "Dogs and cats are allowed.", "c": TEXTS[3]}
    evaluator = InformationRetrievalEvaluator(
        queries={key: text for key, text in corpus.items()},
        corpus=corpus,
        relevant_docs={key: {key} for key in corpus},
        write_csv=False,
    )
    assert evaluator(model)["cosine_accuracy@1"] == 1.0
