"""Each recipe lowers its loss on a real, tiny model and leaves a checkpoint that loads; mistakes are named."""

from __future__ import annotations

import gzip
import json
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset, DatasetDict
from sentence_transformers import SentenceTransformer
from typer.testing import CliRunner

from lmk_embed import ConfigError, LandmarkEncoder
from lmk_embed.cli import app
from lmk_embed.training import CorpusError
from lmk_embed.training.contrast import ChunkContrastiveLoss
from lmk_embed.training.fit import fit
from lmk_embed.training.labelled import read_pairs, read_scores, read_spans
from lmk_embed.training.recipes import RECIPES, parse_recipe
from lmk_embed.training.session import LossError, Progress
from sentence_transformers_lmk import to_sentence_transformer
from training.sources import OBJECTS, SUBJECTS, VERBS, document, write_texts

RECIPE_FILES = Path(__file__).parents[2] / "examples" / "recipes"


def write(path: Path, rows: list[Any]) -> Path:
    lines = "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows)
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(lines.encode()))
    else:
        path.write_text(lines)
    return path


def fact(n: int) -> tuple[str, str]:
    subject, verb, thing = SUBJECTS[n % 6], VERBS[(n // 6) % 6], OBJECTS[(n * 7) % 6]
    return f"What {verb} {thing}, number {n}?", f"{subject} {verb} {thing} in house number {n}."


def pair_rows(count: int = 48) -> list[dict[str, Any]]:
    return [
        {"query": fact(n)[0], "positive": fact(n)[1], "negatives": [fact(n + 1)[1], fact(n + 7)[1]], "source": "h"}
        for n in range(count)
    ]


def span_rows(count: int = 32) -> list[dict[str, Any]]:
    rows = []
    for n in range(count):
        text = document(n, 12)
        start = text.index(".") + 2
        query, answer = fact(n)
        rows.append(
            {
                "query": query,
                "document": f"{text[:start]}{answer} {text[start:]}",
                "span": [start, start + len(answer)],
            }
        )
    return rows


def score_rows(count: int = 32) -> list[dict[str, Any]]:
    return [
        {
            "query": fact(n)[0],
            "candidates": [fact(n + at)[1] for at in (0, 1, 6, 9)],
            "scores": [9.0, 2.0, 3.0, -1.0],
        }
        for n in range(count)
    ]


ROWS = {"contrastive": pair_rows, "chunk-contrastive": span_rows, "kd": score_rows}
LOSS = {"contrastive": {"dimensions": [16]}, "chunk-contrastive": {}, "kd": {"group_size": 4}}


def recipe_of(name: str, base: Path, data: Path, **changes: dict[str, Any]) -> Any:
    table: dict[str, Any] = {
        "model": {"base": str(base), "max_seq_length": 128, "granularity": 16, "granularities": [8, 16, 32]},
        "data": {"train": [str(data)]},
        "training": {"steps": 20, "batch_size": 8, "learning_rate": 2e-3, "warmup_steps": 2, "save_steps": 8},
        "loss": LOSS[name],
    }
    return parse_recipe(name, {key: value | changes.get(key, {}) for key, value in table.items()}, "test")


@pytest.fixture(scope="module", params=sorted(ROWS))
def fitted(request: pytest.FixtureRequest, tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fit")
    data = write(folder / "rows.jsonl.gz", ROWS[request.param]())
    done = fit(recipe_of(request.param, tiny_model, data), folder / "out", device="cpu")
    assert done.folder == folder / "out"
    assert done.step == 20
    return folder / "out"


def test_the_loss_falls_and_the_checkpoint_loads(fitted: Path) -> None:
    lines = (fitted / "training" / "loss.csv").read_text().splitlines()
    first, *_, last = (float(line.split(",")[2]) for line in lines[1:])
    assert last < first
    assert (fitted / "training" / "loss.png").stat().st_size > 1000
    encoder = LandmarkEncoder.from_pretrained(fitted)
    assert encoder.config.landmark_trained
    assert encoder.config.granularity == 16
    text = document(3, 20)
    model = SentenceTransformer(str(fitted), trust_remote_code=True, device="cpu")
    np.testing.assert_allclose(model.encode_document(text), encoder.encode_document(text).vector, atol=1e-5)
    card = (fitted / "README.md").read_text()
    assert "Training rows" in card
    assert '"recipe": ' in card


def test_a_finished_run_is_left_as_it_is(fitted: Path, tiny_model: Path) -> None:
    before = {path: path.read_bytes() for path in fitted.glob("*.safetensors")}
    settings = json.loads((fitted / "training" / "settings.json").read_text())
    name = settings.pop("recipe")
    assert fit(parse_recipe(name, settings, "again"), fitted, device="cpu").step == 20
    assert {path: path.read_bytes() for path in fitted.glob("*.safetensors")} == before
    (fitted / "config.json").unlink()  # as if it had been killed between its last step and its end
    assert fit(parse_recipe(name, settings, "again"), fitted, device="cpu").step == 20
    assert {path: path.read_bytes() for path in fitted.glob("*.safetensors")} == before
    settings["training"]["seed"] = 5
    with pytest.raises(ConfigError, match="holds a run with other settings"):
        fit(parse_recipe(name, settings, "other"), fitted, device="cpu")


@pytest.mark.parametrize("name", ["contrastive", "chunk-contrastive"])
def test_stopped_and_run_again_it_ends_up_with_the_same_weights(
    name: str, tiny_model: Path, tmp_path: Path
) -> None:
    data = write(tmp_path / "rows.jsonl", ROWS[name]())
    recipe = recipe_of(name, tiny_model, data, training={"steps": 6})
    fit(recipe, tmp_path / "whole", device="cpu")
    original = Progress.on_step_end

    def stopping(self: Any, args: Any, state: Any, control: Any, **more: Any) -> None:
        self._stop.requested = self._stop.requested or state.global_step == 4
        original(self, args, state, control, **more)

    Progress.on_step_end = stopping
    try:
        assert fit(recipe, tmp_path / "parts", device="cpu").folder is None
    finally:
        Progress.on_step_end = original
    assert not (tmp_path / "parts" / "config.json").exists()
    assert fit(recipe, tmp_path / "parts", device="cpu").step == 6
    whole, parts = (LandmarkEncoder.from_pretrained(tmp_path / each) for each in ("whole", "parts"))
    np.testing.assert_allclose(whole.encode_query("rent"), parts.encode_query("rent"), atol=1e-6)


@pytest.mark.parametrize("pooling", ["cls", "mean", "multi_cls", "landmark"])
def test_every_pooling_can_be_trained_and_is_saved(pooling: str, tiny_model: Path, tmp_path: Path) -> None:
    data = write(tmp_path / "rows.jsonl", [row | {"negatives": []} for row in pair_rows(24)])
    model = {"pooling": pooling, "granularities": [], "query_prompt": "query: "}
    recipe = recipe_of(
        "contrastive",
        tiny_model,
        data,
        model=model,
        training={"steps": 3, "mini_batch_size": 4},
        loss={"dimensions": []},
    )
    fit(recipe, tmp_path / "out", device="cpu")
    encoder = LandmarkEncoder.from_pretrained(tmp_path / "out")
    assert encoder.config.pooling == pooling
    assert encoder.config.query_prompt == "query: "
    assert encoder.config.landmark_trained == (pooling == "landmark")


def test_a_loss_that_is_no_number_stops_the_run(tiny_model: Path, tmp_path: Path) -> None:
    data = write(tmp_path / "rows.jsonl", pair_rows())
    training = {"steps": 40, "learning_rate": 1e30, "max_grad_norm": 1e30, "warmup_steps": 0, "save_steps": 1}
    with pytest.raises(LossError, match=r"the loss is nan at step \d+; the last good checkpoint is .*-\d"):
        fit(recipe_of("contrastive", tiny_model, data, training=training), tmp_path / "out", device="cpu")
    assert not (tmp_path / "out" / "config.json").exists()


def test_rows_that_share_too_many_texts_are_an_error(tiny_model: Path, tmp_path: Path) -> None:
    """Sentence Transformers' sampler would end the run early, with a warning."""
    data = write(tmp_path / "rows.jsonl", pair_rows(2) * 8)
    with pytest.raises(CorpusError, match=r"ended at step \d of 20: the 16 rows share so many texts"):
        fit(recipe_of("contrastive", tiny_model, data), tmp_path / "out", device="cpu")
    assert not (tmp_path / "out" / "config.json").exists()


class TestChunkContrast:
    def loss(
        self, model: Path, weight: float
    ) -> tuple[ChunkContrastiveLoss, list[dict[str, torch.Tensor]], torch.Tensor]:
        encoder = LandmarkEncoder.from_pretrained(
            model, pooling="landmark", context="window", landmark_trained=True, granularity=12
        )
        transformer = to_sentence_transformer(encoder, device="cpu").eval()
        rows = span_rows(3)
        features = [transformer.preprocess([row[key] for row in rows]) for key in ("query", "document")]
        labels = torch.tensor([row["span"] for row in rows])
        return ChunkContrastiveLoss(transformer, weight, temperature=0.5), features, labels

    @pytest.mark.parametrize("weight", [0.0, 0.3, 1.0])
    def test_it_is_what_its_formula_says(self, tiny_model: Path, weight: float) -> None:
        loss, features, labels = self.loss(tiny_model, weight)
        encoder = LandmarkEncoder.from_pretrained(
            tiny_model, pooling="landmark", context="window", landmark_trained=True, granularity=12
        )
        rows = span_rows(3)
        documents = list(encoder.encode_documents([row["document"] for row in rows]))
        queries = encoder.encode_queries([row["query"] for row in rows])
        expected = []
        for number, row in enumerate(rows):
            scores = [
                np.exp([float(queries[number] @ chunk.vector) / 0.5 for chunk in each.chunks])
                for each in documents
            ]
            first, last = row["span"]
            shared = [min(c.end, last) - max(c.start, first) for c in documents[number].chunks]
            shorter = [min(c.end - c.start, last - first) for c in documents[number].chunks]
            held = [s > 0 and 2 * s >= n for s, n in zip(shared, shorter, strict=True)]
            assert any(held)
            right = scores[number][held].sum()
            others = sum(each.sum() for at, each in enumerate(scores) if at != number)
            inside = -np.log(right / scores[number].sum())
            expected.append(weight * inside - (1 - weight) * np.log(right / (right + others)))
        assert loss(features, labels).item() == pytest.approx(np.mean(expected), abs=1e-5)

    def test_one_row_alone_has_a_gradient(self, tiny_model: Path) -> None:
        loss, features, labels = self.loss(tiny_model, 0.5)
        single = [{name: value[:1] for name, value in each.items()} for each in features]
        loss(single, labels[:1]).backward()
        gradients = [p.grad for p in loss.parameters() if p.grad is not None]
        assert gradients
        assert all(bool(torch.isfinite(gradient).all()) for gradient in gradients)


class TestRows:
    def test_every_bad_row_is_counted(self, tmp_path: Path) -> None:
        good = pair_rows(2)
        bad = [
            "no JSON",
            {"query": "q"},
            {"query": "q", "positive": " "},
            {"query": "q", "positive": "p", "negatives": "n"},
        ]
        found = read_pairs([write(tmp_path / "a.jsonl", [*good, *bad])])
        assert len(found.rows) == 2
        assert found.facts.problems.total() == 4
        assert list(found.rows[0]) == ["query", "positive", "negative_1", "negative_2"]

    def test_rows_with_fewer_negatives_decide(self, tmp_path: Path) -> None:
        rows = [*pair_rows(1), {"query": "q", "positive": "p", "negatives": ["n"]}]
        found = read_pairs([write(tmp_path / "a.jsonl", rows)])
        assert list(found.rows[0]) == ["query", "positive", "negative_1"]
        assert "1 to 2 negatives, 1 of each" in next(iter(found.facts.problems))

    @pytest.mark.parametrize("span", [[3, 3], [0, 999], ["a", 2], [1], None, [True, 2], [5, 6]])
    def test_spans_are_checked(self, tmp_path: Path, span: Any) -> None:
        rows = [*span_rows(1), {"query": "q", "document": "Where is it?", "span": span}]
        found = read_spans([write(tmp_path / "a.jsonl", rows)])
        assert (len(found.rows), found.facts.problems.total()) == (1, 1)

    def test_long_documents_are_cut_around_the_answer(self, tmp_path: Path) -> None:
        rows = []
        for at in (0, 500, 3000):
            text = document(1, 80)[:3000]
            rows.append({"query": "q", "document": text[:at] + " ANSWER " + text[at:], "span": [at + 1, at + 7]})
        for row in read_spans([write(tmp_path / "a.jsonl", rows)], characters=200).rows:
            start, end = row["label"]
            assert row["document"][start:end] == "ANSWER"
            assert 150 <= len(row["document"]) <= 200

    def test_scores_belong_to_candidates(self, tmp_path: Path) -> None:
        rows = score_rows(2)
        bad = [rows[0] | {"scores": [1]}, rows[0] | {"scores": [1, 2, 3, "x"]}, rows[0] | {"candidates": "c"}]
        few = [{"query": "q", "candidates": ["a", "b"], "scores": [1, 2]}]
        found = read_scores([write(tmp_path / "a.jsonl", [*rows, *bad, *few])], 3)
        assert [len(row["label"]) for row in found.rows] == [3, 3]
        assert found.facts.problems.total() == 4

    def test_beir_and_datasets_folders(self, tmp_path: Path) -> None:
        beir = tmp_path / "beir"
        beir.mkdir()
        write(beir / "corpus.jsonl", [{"_id": "d", "title": "", "text": "Rent is due in May. Dogs may stay."}])
        write(beir / "queries.jsonl", [{"_id": "q", "text": "When is rent due?"}])
        (beir / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\nq\td\t1\n")
        write(beir / "spans.jsonl", [{"query_id": "q", "doc_id": "d", "spans": [[0, 19]]}])
        Dataset.from_list([{"query": "a", "positive": "b"}]).save_to_disk(tmp_path / "flat")
        splits = {"train": Dataset.from_list([{"query": "c", "positive": "d"}])}
        DatasetDict(splits).save_to_disk(tmp_path / "split")
        found = read_pairs([beir, tmp_path / "flat", tmp_path / "split"])
        assert sorted(row["query"] for row in found.rows) == ["When is rent due?", "a", "c"]
        (row,) = read_spans([beir]).rows
        assert row["document"][slice(*row["label"])] == "Rent is due in May."

    def test_nothing_left_is_an_error_with_the_reasons(self, tmp_path: Path) -> None:
        path = write(tmp_path / "a.jsonl", [{"query": "q", "source": "other-1"}, *pair_rows(1)])
        with pytest.raises(CorpusError, match=r"query and positive \(1 rows: no text under.*1 rows are of other"):
            read_pairs([path], ["other-*"])


class TestSettings:
    def test_the_commented_examples_are_valid(self) -> None:
        assert {path.stem for path in RECIPE_FILES.glob("*.toml")} == set(RECIPES)
        for path in RECIPE_FILES.glob("*.toml"):
            parse_recipe(path.stem, tomllib.loads(path.read_text()), path.name)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"trainin": {}}, "trainin: there is no such key; did you mean 'training'"),
            ({"training": {"step": 3}}, "training.step: there is no such key; did you mean 'steps'"),
            ({"training": {"steps": 0}}, "training.steps: Input should be greater than or equal to 1, got 0"),
            ({"model": {"granularity": 4}}, "model.base: is needed"),
            ({"data": {"train": []}}, "data.train: .*at least 1 item"),
            ({"loss": {"temperature": "warm"}}, "loss.temperature: .*number.*'warm'"),
            ({"model": {"base": "m", "pooling": "max"}}, "model.pooling: .*'max'"),
        ],
    )
    def test_mistakes_are_named(self, change: dict[str, Any], message: str) -> None:
        table = {"model": {"base": "m"}, "data": {"train": ["x"]}} | change
        with pytest.raises(ConfigError, match=message):
            parse_recipe("contrastive", table, "a.toml")

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"loss": {"temperatur": 3}}, "loss.temperatur: there is no such key; did you mean 'temperature'"),
            ({"loss": {"temperature": -3}}, "temperature must be above 0, got -3"),
            ({"training": {"steps": "x"}}, "training.steps: .*integer.*'x'"),
            ({"data": {"text": []}}, "data.text: .*at least 1 item"),
        ],
    )
    def test_mistakes_in_distillation_are_named(self, change: dict[str, Any], message: str) -> None:
        table = {"model": {"base": "m"}, "data": {"text": ["x"]}} | change
        with pytest.raises(ConfigError, match=message):
            parse_recipe("distill", table, "a.toml")

    def test_all_mistakes_are_named_at_once(self) -> None:
        with pytest.raises(ConfigError, match=r"model.base: is needed; data: is needed"):
            parse_recipe("kd", {"model": {}}, "a.toml")

    def test_chunks_need_a_pooling_that_has_them(self) -> None:
        table = {"model": {"base": "m", "pooling": "mean"}, "data": {"train": ["x"]}}
        with pytest.raises(ConfigError, match="'mean' has no chunks in context"):
            parse_recipe("chunk-contrastive", table, "a.toml")

    def test_what_does_not_fit_the_model(self, tiny_model: Path, tmp_path: Path) -> None:
        data = write(tmp_path / "rows.jsonl", pair_rows(4))
        with pytest.raises(ConfigError, match=r"loss.dimensions \[64\] are more than the 32"):
            fit(recipe_of("contrastive", tiny_model, data, loss={"dimensions": [64]}), tmp_path / "out")
        with pytest.raises(ConfigError, match="granularities are for chunks that share a row"):
            fit(recipe_of("contrastive", tiny_model, data, model={"pooling": "cls"}), tmp_path / "out")
        assert not (tmp_path / "out").exists()


def test_distillation_from_a_file(tiny_model: Path, tmp_path: Path) -> None:
    config = tmp_path / "recipe.toml"
    text = write_texts(tmp_path / "texts", count=3, sentences=20)
    config.write_text(
        f'[model]\nbase = "{tiny_model}"\nmax_seq_length = 64\nneighbour_weight = 0.2\n[data]\ntext = ["{text}"]\n'
        "[training]\nsteps = 2\n[loss]\nbatch_tokens = 128\n"
    )
    out = tmp_path / "out"
    result = CliRunner().invoke(
        app, ["train", "distill", "--config", str(config), "--out", str(out), "--device", "cpu"]
    )
    assert result.exit_code == 0, result.output
    assert LandmarkEncoder.from_pretrained(out).config.neighbour_weight == 0.2


def test_from_the_command_line(tiny_model: Path, tmp_path: Path) -> None:
    data = write(tmp_path / "rows.jsonl", pair_rows(16))
    config = tmp_path / "recipe.toml"
    config.write_text(
        f'[model]\nbase = "{tiny_model}"\n[data]\ntrain = ["{data}"]\n[training]\nsteps = 2\nbatch_size = 4\n'
    )
    out = tmp_path / "out"
    result = CliRunner().invoke(
        app, ["train", "contrastive", "--config", str(config), "--out", str(out), "--device", "cpu"]
    )
    assert result.exit_code == 0, result.output
    assert f"model in {out}" in result.output
    assert LandmarkEncoder.from_pretrained(out).config.landmark_trained
    wrong = CliRunner().invoke(app, ["train", "contrastiv", "--config", str(config), "--out", str(out)])
    assert wrong.exit_code != 0
    assert "did you mean 'contrastive'" in str(wrong.exception)
