"""Distillation from a folder of text to a landmark model, and every way it can be stopped."""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from families import FAMILIES
from safetensors.torch import load_file
from typer.testing import CliRunner, Result

from evaluation.test_command import write_dataset
from lmk_embed import ConfigError, LandmarkEncoder
from lmk_embed.cli import app
from lmk_embed.errors import CheckpointError, LandmarkError
from lmk_embed.training import CorpusError, Recipe, Schedule, Source, distill
from lmk_embed.training.session import Progress
from training.sources import document, write_questions, write_texts

RECIPE = Recipe(batch_tokens=256, granularities=(8, 16))


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_texts(tmp_path_factory.mktemp("data") / "texts")


def run(base: Path, texts: Path, out: Path, **changes: Any) -> Any:
    schedule = {
        "steps": 12,
        "save_steps": 5,
        "learning_rate": 2e-3,
        "warmup_steps": 2,
        **changes.pop("schedule", {}),
    }
    settings = {
        "recipe": RECIPE,
        "schedule": Schedule(**schedule),
        "max_seq_length": 64,
        "device": "cpu",
        **changes,
    }
    return distill(base, Source((texts,)), out, **settings)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def equal(one: Path, other: Path) -> bool:
    a, b = weights(one), weights(other)
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def curve(out: Path) -> list[dict[str, str]]:
    with (out / "training" / "loss.csv").open() as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def finished(tiny_model: Path, texts: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("out") / "landmark"
    outcome = run(tiny_model, texts, out, schedule={"steps": 60, "save_steps": 25})
    assert outcome.folder == out
    assert outcome.step == 60
    return out


def test_the_student_comes_closer_to_its_targets(finished: Path) -> None:
    entries = curve(finished)
    assert [int(entry["step"]) for entry in entries] == [20, 40, 60]
    cosines = [float(entry["cosine"]) for entry in entries]
    assert cosines[-1] < 0.6 * cosines[0]
    assert int(entries[-1]["tokens"]) > 60 * 100
    assert (finished / "training" / "loss.png").read_bytes().startswith(b"\x89PNG")


def test_the_result_is_a_landmark_model_like_any_other(finished: Path, tiny_model: Path, texts: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        encoder = LandmarkEncoder.from_pretrained(finished)
        embedding = encoder.encode_document(document(1, 60))
    config = encoder.config
    assert (config.pooling, config.landmark_trained, config.context) == ("landmark", True, "window")
    assert (config.max_seq_length, config.granularity, config.boundaries) == (64, 64, "sentence")
    assert len(embedding.chunks) > 5
    card = (finished / "README.md").read_text()
    assert str(tiny_model) in card
    assert "| houses | 8 |" in card
    assert (finished / "training_log.csv").read_text() == (finished / "training" / "loss.csv").read_text()
    shutil.rmtree(finished / "training" / "texts")  # nothing of the run is needed to use the model
    assert LandmarkEncoder.from_pretrained(finished).fingerprint == encoder.fingerprint


def test_a_finished_run_is_left_as_it_is(tiny_model: Path, texts: Path, tmp_path: Path) -> None:
    run(tiny_model, texts, tmp_path / "out")
    before = weights(tmp_path / "out")
    outcome = run(tiny_model, texts, tmp_path / "out")
    assert outcome.folder == tmp_path / "out"
    after = weights(tmp_path / "out")
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_stopped_at_any_step_it_ends_up_with_the_same_weights(
    tiny_model: Path, texts: Path, tmp_path: Path
) -> None:
    """Interrupted after each of several steps, in the same process, and killed between two checkpoints."""
    run(tiny_model, texts, tmp_path / "whole")
    for step in (1, 4, 7):
        original = Progress.on_step_end

        def stopping(self: Any, args: Any, state: Any, control: Any, at: int = step, **more: Any) -> None:
            self._stop.requested = self._stop.requested or state.global_step == at
            original(self, args, state, control, **more)  # noqa: B023

        Progress.on_step_end = stopping
        try:
            outcome = run(tiny_model, texts, tmp_path / "parts")
        finally:
            Progress.on_step_end = original
        assert outcome.folder is None
        assert outcome.step == step
        assert not (tmp_path / "parts" / "config.json").exists()
    outcome = run(tiny_model, texts, tmp_path / "parts")
    assert outcome.step == 12
    assert equal(tmp_path / "whole", tmp_path / "parts")
    whole = run(tiny_model, texts, tmp_path / "whole")
    assert outcome.tokens == whole.tokens


def test_a_half_written_checkpoint_is_passed_over(tiny_model: Path, texts: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(tiny_model, texts, out)
    expected = weights(out)
    checkpoints = out / "training" / "checkpoints"
    assert sorted(path.name for path in checkpoints.iterdir()) == ["checkpoint-10", "checkpoint-12"]
    (checkpoints / "checkpoint-12" / "trainer_state.json").write_text('{"glob')
    (checkpoints / "checkpoint-12" / "optimizer.pt").unlink()
    for path in out.glob("*.*"):
        path.unlink()
    run(tiny_model, texts, out)
    after = weights(out)
    assert all(torch.equal(expected[name], after[name]) for name in expected)


def command(base: Path, texts: Path, out: Path, *more: object) -> list[str]:
    arguments = ["distill", base, "--text", texts, "--out", out, "--steps", 40, "--save-steps", 10, *more]
    fixed = ["--batch-tokens", 256, "--granularity", 8, "--max-seq-length", 64, "--device", "cpu"]
    return [str(each) for each in (*arguments, *fixed)]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_process_that_is_stopped_can_be_run_again(
    tiny_model: Path, texts: Path, tmp_path: Path, number: signal.Signals
) -> None:
    out = tmp_path / "out"
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    words = [sys.executable, "-m", "lmk_embed", *command(tiny_model, texts, out, "--steps", 4000)]
    process = subprocess.Popen(words, env=environment, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while (
        not list(out.glob("training/checkpoints/checkpoint-*/trainer_state.json")) and time.monotonic() < deadline
    ):
        assert process.poll() is None, process.stderr and process.stderr.read()
        time.sleep(0.05)
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    if number == signal.SIGKILL:
        assert process.returncode == -signal.SIGKILL
    else:
        assert process.returncode == 130
        assert "run the same command again to go on" in said
    assert not (out / "config.json").exists()
    before = max(int(path.name.split("-")[1]) for path in out.glob("training/checkpoints/checkpoint-*"))
    process = subprocess.Popen(words, env=environment, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while not list(out.glob(f"training/checkpoints/checkpoint-{before // 10 * 10 + 20}")):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    process.kill()
    process.communicate()
    history = json.loads(newest(out).read_text())["log_history"]
    steps = [entry["step"] for entry in history]
    assert steps == sorted(set(steps))
    assert steps[0] == 20 or steps[0] == steps[-1]


def newest(out: Path) -> Path:
    found = out.glob("training/checkpoints/checkpoint-*/trainer_state.json")
    return max(found, key=lambda path: int(path.parent.name.split("-")[1]))


def test_epochs_use_each_batch_again_without_asking_the_teacher(
    tiny_model: Path, texts: Path, tmp_path: Path
) -> None:
    outcome = run(tiny_model, texts, tmp_path / "out", schedule={"steps": 5, "epochs": 3})
    assert outcome.step == 15
    kept = tmp_path / "out" / "training" / "targets"
    assert sorted(path.name for path in kept.iterdir()) == [f"{number}.npy" for number in range(5)]


def test_the_best_checkpoint_is_the_one_that_is_kept(tiny_model: Path, texts: Path, tmp_path: Path) -> None:
    from lmk_embed.evaluation import read_dataset
    from lmk_embed.training.trainer import headline

    houses = read_dataset(write_dataset(tmp_path / "houses", n_docs=2, sentences=30))
    # A rate that ruins the model: the first checkpoint is the best one.
    outcome = run(
        tiny_model,
        texts,
        tmp_path / "out",
        schedule={"steps": 8, "save_steps": 2, "learning_rate": 0.5, "warmup_steps": 6},
        datasets=[houses],
    )
    with (tmp_path / "out" / "training" / "scores.csv").open() as file:
        scores = {int(row["step"]): float(row["eval_score"]) for row in csv.DictReader(file)}
    assert set(scores) == {2, 4, 6, 8}
    assert outcome.scores == {"houses": pytest.approx(max(scores.values()))}
    encoder = LandmarkEncoder.from_pretrained(tmp_path / "out")
    assert headline(encoder, houses) == pytest.approx(max(scores.values()), abs=1e-6)
    assert "| houses |" in (tmp_path / "out" / "README.md").read_text()


@pytest.mark.parametrize("name", ["roberta", "modernbert", "qwen3", "llama"])
def test_any_family_can_be_taught(texts: Path, tmp_path: Path, name: str) -> None:
    family = next(each for each in FAMILIES if each.name == name)
    family.build(tmp_path / "base")
    run(tmp_path / "base", texts, tmp_path / "out", schedule={"steps": 4})
    before = LandmarkEncoder.from_pretrained(tmp_path / "base").config
    encoder = LandmarkEncoder.from_pretrained(tmp_path / "out")
    assert encoder.config.landmark_trained
    assert encoder.config.base_pooling == before.base_pooling
    vectors = np.stack([chunk.vector for chunk in encoder.encode_document(document(0, 20)).chunks])
    assert np.isfinite(vectors).all()


def test_a_teacher_that_pools_its_first_token(tiny_model: Path, texts: Path, tmp_path: Path) -> None:
    run(tiny_model, texts, tmp_path / "out", pooling="cls", schedule={"steps": 2})
    assert LandmarkEncoder.from_pretrained(tmp_path / "out").config.base_pooling == "cls"


def test_mixed_precision_keeps_weights_in_full(tiny_model: Path, texts: Path, tmp_path: Path) -> None:
    run(tiny_model, texts, tmp_path / "out", dtype="bfloat16", schedule={"steps": 4})
    assert {tensor.dtype for tensor in weights(tmp_path / "out").values()} == {torch.float32}
    assert not equal(tmp_path / "out", tiny_model)


def test_training_goes_on_from_another_landmark_model(
    tiny_model: Path, texts: Path, finished: Path, tmp_path: Path
) -> None:
    run(tiny_model, texts, tmp_path / "out", init=finished, schedule={"steps": 20, "learning_rate": 1e-4})
    assert float(curve(tmp_path / "out")[0]["cosine"]) < 0.8 * float(curve(finished)[0]["cosine"])


def test_what_cannot_be_done_is_said_before_any_training(
    tiny_model: Path, texts: Path, finished: Path, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="landmark model already"):
        run(finished, texts, tmp_path / "a")
    with pytest.raises(ConfigError, match="reads at most 512"):
        run(tiny_model, texts, tmp_path / "b", max_seq_length=1024)
    with pytest.raises(CheckpointError, match="absent"):
        run(tmp_path / "absent", texts, tmp_path / "c")
    with pytest.raises(CorpusError, match="no such file"):
        run(tiny_model, tmp_path / "absent", tmp_path / "d")
    assert not list((tmp_path / "d").glob("training/checkpoints/*"))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("mine")
    with pytest.raises(ConfigError, match="not empty and holds no run"):
        run(tiny_model, texts, tmp_path / "full")
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["thesis.txt"]
    with pytest.raises(ConfigError, match="is a file"):
        run(tiny_model, texts, tmp_path / "full" / "thesis.txt")


def test_a_run_with_other_settings_is_not_gone_on_with(tiny_model: Path, texts: Path, tmp_path: Path) -> None:
    run(tiny_model, texts, tmp_path / "out", schedule={"steps": 2})
    with pytest.raises(ConfigError, match=r"other settings \(schedule: .*'steps': 2.* before, .*'steps': 3.* now"):
        run(tiny_model, texts, tmp_path / "out", schedule={"steps": 3})


def test_a_student_with_another_tokenizer_is_refused(tiny_model: Path, texts: Path, tmp_path: Path) -> None:
    next(each for each in FAMILIES if each.name == "roberta").build(tmp_path / "roberta")
    with pytest.raises(ConfigError, match="another tokenizer"):
        run(tiny_model, texts, tmp_path / "out", init=tmp_path / "roberta")


@pytest.mark.parametrize("wrong", [{"steps": 0}, {"epochs": 0}, {"learning_rate": 0.0}, {"seed": -1}])
def test_impossible_schedules_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        Schedule(**wrong)


def lmk(*words: str) -> Result:
    result = CliRunner().invoke(app, list(words))
    if result.exception and not isinstance(result.exception, SystemExit | LandmarkError):
        raise result.exception
    return result


def test_from_the_command_line_to_a_model_that_answers(tiny_model: Path, texts: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    questions = write_questions(tmp_path / "questions")
    result = lmk(*command(tiny_model, texts, out, "--steps", 3, "--queries", questions, "--source", "hous*"))
    assert result.exit_code == 0, result.output
    assert f"use it with --model {out}" in result.output
    assert "Short texts" in (out / "README.md").read_text()
    shown = lmk("info", "--model", str(out))
    assert "landmark" in shown.output


def test_rows_that_are_not_trained_on_are_reported(tiny_model: Path, tmp_path: Path) -> None:
    texts = write_texts(tmp_path / "texts")
    with (texts / "part.jsonl").open("a") as file:
        file.write('{"txt": "misspelt"}\n{broken\n')
    with pytest.warns(
        UserWarning, match=r"2 rows or files are not trained on .*part.jsonl, line 9: no text under"
    ):
        run(tiny_model, texts, tmp_path / "out", schedule={"steps": 1})
    card = (tmp_path / "out" / "README.md").read_text()
    assert "- 1: not a JSON value in UTF-8" in card
    assert "- 1: no text under 'text'" in card


def test_errors_on_the_command_line_leave_no_model(tiny_model: Path, texts: Path, tmp_path: Path) -> None:
    result = lmk(*command(tiny_model, texts, tmp_path / "out", "--source", "nothing"))
    assert isinstance(result.exception, CorpusError)
    assert not (tmp_path / "out" / "config.json").exists()
