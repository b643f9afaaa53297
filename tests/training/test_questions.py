"""Questions with answers: read, drawn with windows that hold the answers, and learnt."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from evaluation.test_command import write_dataset
from lmk_embed import LandmarkEncoder
from lmk_embed.evaluation import read_dataset
from lmk_embed.training import (
    CorpusError,
    Questions,
    Recipe,
    Sampler,
    Schedule,
    Source,
    distill,
    read_corpus,
    read_questions,
)
from lmk_embed.training.losses import answer_loss, distillation_loss
from lmk_embed.training.sampling import Answer
from lmk_embed.training.trainer import headline
from training.sources import write_texts
from training.test_targets import STUDENT, load, same


@pytest.fixture
def houses(tmp_path: Path) -> Path:
    return write_dataset(tmp_path / "houses")


def write_pairs(path: Path, *rows: object) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def sampler(tiny_model: Path, tmp_path: Path, questions: Questions) -> Sampler:
    parts = load(tiny_model, **STUDENT)
    texts = read_corpus([write_texts(tmp_path / "texts")], tmp_path / "cache")
    recipe = Recipe(batch_tokens=512, granularities=(8, 16))
    return Sampler(parts.tokenizer, parts.config, parts.max_positions, texts, None, questions, recipe, 0)


def test_questions_of_data_sets_and_pairs_are_read_together(houses: Path, tmp_path: Path) -> None:
    good = {"query": "why?", "positive": "because", "source": "a"}
    pairs = write_pairs(
        tmp_path / "p.jsonl", good, {"query": "x", "positive": "y", "source": "b"}, {"query": "only"}
    )
    found = read_questions([houses], [pairs], sources=("a",))
    dataset = read_dataset(houses)
    assert found.facts.sources == {"houses": len(dataset.queries), "a": 1}
    assert found.facts.left_out == {"b": 1}
    assert found.facts.problems == {"no text under 'query' and 'positive'": 1}
    assert found.documents == [*dataset.documents.values(), "because"]
    assert len(found.questions) == len(dataset.queries) + 1
    assert found.questions[-1].gold == ((0, 7),)
    for question in found.questions[:-1]:
        (gold,) = question.gold
        rule = question.text.split("rule ")[1].split(" about")[0]
        assert f"rule {rule} about" in found.documents[question.document][slice(*gold)]
    assert sum(map(len, found.by_document.values())) == len(found.questions)


def test_no_question_at_all_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="no questions in"):
        read_questions([], [write_pairs(tmp_path / "p.jsonl", {"text": "x"})])
    with pytest.raises(CorpusError, match="no such file"):
        read_questions([], [tmp_path / "absent"])


def test_answers_lie_in_the_windows_that_are_drawn_for_them(
    tiny_model: Path, tmp_path: Path, houses: Path
) -> None:
    questions = read_questions([houses], [])
    drawn, again = (sampler(tiny_model, tmp_path, questions) for _ in range(2))
    asked = 0
    for number in range(16):
        batch = drawn.batch(number)
        assert same(batch, again.batch(number))
        assert bool(batch.answers) == (number % 2 == 1)
        pieces = [(plan, piece) for plan in batch.plans for piece in plan.pieces]
        for answer in batch.answers:
            plan = pieces[answer.query.start][0]
            assert [pieces[at][0] for at in answer.query] == [plan] * len(plan.pieces)
            rule, house = plan.text.split("rule ")[1].split(" ")[0], plan.text.split("house ")[1].split(" ")[0]
            for at in answer.chunks:
                window, piece = pieces[at]
                start = window.text.index(f"In house {house} the rule {rule} about")
                end = window.text.index(" pounds.", start)
                assert piece.start <= end and piece.end >= start
            asked += 1
    assert asked > 50


def test_pairs_whose_answer_is_longer_than_a_row_can_be_drawn(tiny_model: Path, tmp_path: Path) -> None:
    pairs = write_pairs(tmp_path / "p.jsonl", {"query": "What is said?", "positive": "It is said again. " * 400})
    batch = sampler(tiny_model, tmp_path, read_questions([], [pairs])).batch(1)
    assert batch.answers
    assert max(max(answer.chunks) for answer in batch.answers) < batch.answers[0].query.start


def test_the_contrast_is_what_its_formula_says() -> None:
    states = torch.tensor([[2.0, 0.0], [0.0, 1.0], [3.0, 3.0], [5.0, 0.0]], requires_grad=True)
    answers = [Answer(range(3, 4), (0, 2))]
    scores = np.array([1, 0, np.sqrt(0.5)]) / 0.5
    expected = -np.log((np.exp(scores[0]) + np.exp(scores[2])) / np.exp(scores).sum())
    found = answer_loss(states, answers, 0.5)
    assert found.item() == pytest.approx(expected, abs=1e-6)
    found.backward()
    assert states.grad is not None and torch.isfinite(states.grad).all()
    targets = torch.nn.functional.normalize(states.detach(), dim=-1)
    parts = distillation_loss(states.detach(), targets, Recipe(answer_weight=2.0, temperature=0.5), answers)
    assert parts.answer is not None
    without = distillation_loss(states.detach(), targets, Recipe(temperature=0.5))
    assert without.answer is None
    assert parts.total.item() == pytest.approx(without.total.item() + 2 * expected, abs=1e-5)


def test_questions_teach_what_answers_them(tiny_model: Path, tmp_path: Path, houses: Path) -> None:
    source = Source((write_texts(tmp_path / "texts"),), spans=(houses,))
    recipe = Recipe(batch_tokens=512, granularities=(16,), answer_weight=1.0, similarity_weight=0.0)
    schedule = Schedule(steps=80, save_steps=100, learning_rate=3e-3, warmup_steps=5)
    out = tmp_path / "out"
    distill(tiny_model, source, out, recipe=recipe, schedule=schedule, max_seq_length=128, device="cpu")
    with (out / "training" / "loss.csv").open() as file:
        terms = [float(row["answer"]) for row in csv.DictReader(file)]
    assert terms[-1] < 0.9 * terms[0]
    assert "Questions with answers" in (out / "README.md").read_text()
    dataset = read_dataset(houses)
    before = LandmarkEncoder.from_pretrained(tiny_model, granularity=16, max_seq_length=128)
    after = LandmarkEncoder.from_pretrained(out, granularity=16)
    assert headline(after, dataset) >= headline(before, dataset) - 0.1
