"""Names of systems, and that each computes what its name says."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from lmk_embed import LandmarkEncoder, MissingExtraError
from lmk_embed.errors import ConfigError
from lmk_embed.evaluation import CorpusVectors, Model, build, parse_systems
from lmk_embed.results import unit

TEXTS = (
    " ".join(f"Clause {i} says that item {i} costs {i * 7} pounds, unless the tenant objects." for i in range(60)),
    "The deposit is three months of rent.",
    " \n ",
)


@pytest.fixture(scope="module")
def tiny(tiny_model: Path) -> Model:
    return Model(tiny_model)


def vectors(name: str, model: Model, base: Model | None = None) -> CorpusVectors:
    (spec,) = parse_systems([name])
    system = build(spec, model, base or model)
    return system.finish(system.embedder.encode_documents(TEXTS))


class TestNames:
    @pytest.mark.parametrize(
        "name",
        [
            "landmark",
            "landmark:128",
            "landmark:32:boundaries=fixed:context=window",
            "late-chunking:32",
            "split-and-embed:64",
            "split-and-embed:100:33%",
            "smoothed:256:20%",
            "truncated",
            "windows",
        ],
    )
    def test_a_name_names_one_system(self, name: str) -> None:
        assert [spec.name for spec in parse_systems([name, name])] == [name]

    def test_bare_names_stand_for_all_sizes(self) -> None:
        assert len(parse_systems(["split-and-embed"])) == 6
        assert [spec.name for spec in parse_systems(["smoothed"])] == [
            "smoothed:64",
            "smoothed:128",
            "smoothed:256",
        ]
        mixed = parse_systems(["split-and-embed:128", "split-and-embed"])
        assert len(mixed) == 6 and mixed[0].name == "split-and-embed:128"

    def test_values_are_what_they_look_like(self) -> None:
        (spec,) = parse_systems(["landmark:granularity=null:overlap=0:query_prompt=q"])
        assert spec.settings == {"granularity": None, "overlap": 0, "query_prompt": "q"}

    @pytest.mark.parametrize(
        ("name", "message"),
        [
            ("split-and-embd:64:20%", "did you mean 'split-and-embed:64:20%'"),
            ("late_chunking", "did you mean 'late-chunking'"),
            ("zzz", "there are landmark, late-chunking"),
            ("split-and-embed:x", "cannot read 'x'; the form is split-and-embed:TOKENS:OVERLAP%"),
            ("split-and-embed:0", "cannot read '0'"),
            ("split-and-embed:64:100%", "cannot read '100%'"),
            ("split-and-embed:20%", "needs a number of tokens"),
            ("landmark:granularty=3", "did you mean 'granularity'"),
            ("landmark:boundaries=word", "boundaries must be one of"),
            ("truncated:64", "truncated has no parts"),
        ],
    )
    def test_what_is_wrong_is_named(self, name: str, message: str) -> None:
        with pytest.raises(ConfigError, match=message):
            parse_systems([name])


class TestMeaning:
    def test_landmark_is_the_encoder_as_it_comes(self, tiny: Model, tiny_model: Path) -> None:
        expected = CorpusVectors.of(LandmarkEncoder.from_pretrained(tiny_model).encode_documents(TEXTS))
        found = vectors("landmark", tiny)
        assert found.chunks == pytest.approx(expected.chunks, abs=1e-6)
        assert found.spans.tolist() == expected.spans.tolist()

    def test_late_chunking_is_span_means_in_windows(self, tiny: Model, tiny_model: Path) -> None:
        encoder = LandmarkEncoder.from_pretrained(tiny_model, pooling="span_mean", granularity=32)
        expected = CorpusVectors.of(encoder.encode_documents(TEXTS))
        assert vectors("late-chunking:32", tiny).chunks == pytest.approx(expected.chunks, abs=1e-6)

    def test_split_and_embed_gives_each_piece_the_vector_it_has_alone(self, tiny: Model) -> None:
        found = vectors("split-and-embed:32:20%", tiny)
        assert found.counts.tolist() == [found.counts[0], 1, 0] and found.counts[0] > 10
        alone = tiny.encoder(pooling="mean")
        pieces = [TEXTS[0][start:end] for start, end in found.spans[: found.counts[0]].tolist()]
        expected = np.stack([embedding.vector for embedding in alone.encode_documents(pieces)])
        assert found.chunks[:-1] == pytest.approx(expected, abs=1e-5)
        assert found.documents[0] == pytest.approx(unit(expected.mean(axis=0)), abs=1e-5)
        assert not found.cut.any()
        assert (found.spans[1:-1, 0] < found.spans[:-2, 1]).any(), "neighbours overlap"

    def test_smoothed_is_split_and_embed_with_neighbours(self, tiny: Model) -> None:
        expected = vectors("split-and-embed:64", tiny).smoothed(0.3)
        assert np.array_equal(vectors("smoothed:64", tiny).chunks, expected.chunks)

    def test_truncated_is_what_sentence_transformers_does_with_a_long_text(self, tiny: Model) -> None:
        found = vectors("truncated", tiny)
        expected = tiny.transformer.encode_document(list(TEXTS), normalize_embeddings=True)
        assert found.documents == pytest.approx(expected, abs=1e-5)
        assert found.counts.tolist() == [1, 1, 0] and found.cut.tolist() == [True, False, False]

    def test_windows_are_full_rows_and_the_document_is_their_mean(self, tiny: Model) -> None:
        found = vectors("windows", tiny)
        n = found.counts[0]
        assert n == -(-tiny.count(TEXTS[0]) // 510)
        assert found.spans[n - 1, 1] == len(TEXTS[0])
        alone = tiny.encoder(pooling="mean")
        for span, vector in zip(found.spans[:n].tolist(), found.chunks[:n], strict=True):
            assert vector == pytest.approx(alone.encode_document(TEXTS[0][span[0] : span[1]]).vector, abs=1e-5)

    def test_rivals_read_rows_as_long_as_the_landmark_model_does(self, tiny_model: Path, tmp_path: Path) -> None:
        LandmarkEncoder.from_pretrained(tiny_model, max_seq_length=40).save_pretrained(tmp_path / "short")
        base = Model(tmp_path / "short")
        longer = base.reading(100)
        assert (base.default.max_seq_length, longer.default.max_seq_length) == (40, 100)
        assert longer.transformer.max_seq_length == 100
        assert vectors("windows", longer).counts[0] == -(-base.count(TEXTS[0]) // 98)
        assert base.reading(9999).default.max_seq_length == 512, "all positions that it has"

    def test_all_systems_can_run_in_another_precision(self, tiny_model: Path) -> None:
        half = Model(tiny_model, device="cpu", dtype="bfloat16")
        for name in ("landmark:32", "split-and-embed:64"):
            exact, rough = vectors(name, Model(tiny_model, device="cpu")), vectors(name, half)
            assert 0 < np.abs(exact.chunks - rough.chunks).max() < 0.05

    def test_queries_are_alike_for_systems_of_one_model(self, tiny: Model) -> None:
        asked = ["How much is the deposit?", "Who objects?"]
        ours, theirs = (
            build(spec, tiny, tiny).embedder.encode_queries(asked)
            for spec in parse_systems(["late-chunking", "split-and-embed:64"])
        )
        assert ours == pytest.approx(theirs, abs=1e-5)

    def test_rivals_use_the_base_model(self, tiny: Model, tiny_model: Path) -> None:
        base = Model(None)
        for name in ("split-and-embed:256", "truncated"):
            assert vectors(name, tiny, base).chunks.shape[1] == 384
        assert vectors("landmark", tiny, base).chunks.shape[1] == 32

    def test_the_published_pooling_of_a_sentence_transformers_folder_is_kept(self) -> None:
        bundled = Model(None)
        ours = bundled.encoder(pooling="mean").encode_document(TEXTS[1]).vector
        found = vectors("split-and-embed:64", bundled)
        assert found.chunks[-1] == pytest.approx(ours, abs=1e-5)
        assert bundled.transformer.max_seq_length == bundled.default.max_seq_length

    def test_chunks_that_do_not_fit_are_counted(self, tiny_model: Path, tmp_path: Path) -> None:
        LandmarkEncoder.from_pretrained(tiny_model, max_seq_length=40).save_pretrained(tmp_path / "short")
        found = vectors("split-and-embed:64", Model(tmp_path / "short"))
        assert found.cut.tolist() == [True, False, False]


def test_fingerprints_tell_models_apart(tiny: Model) -> None:
    assert tiny.transformer_fingerprint != Model(None).transformer_fingerprint
    assert len(tiny.transformer_fingerprint) == 64


@pytest.mark.parametrize(
    ("module", "name"),
    [("langchain_text_splitters", "split-and-embed:64"), ("sentence_transformers", "split-and-embed:64")],
)
def test_missing_libraries(tiny_model: Path, monkeypatch: pytest.MonkeyPatch, module: str, name: str) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError, match=r'pip install "lmk-embed\[eval\]"'):
        vectors(name, Model(tiny_model))
