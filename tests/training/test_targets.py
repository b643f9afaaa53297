"""Steps are drawn reproducibly, and targets are what the teacher says, alone and in context."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from families import FAMILIES

from lmk_embed import ConfigError, LandmarkConfig, LandmarkEncoder
from lmk_embed.config import RowPooling
from lmk_embed.loading import Parts, load_parts
from lmk_embed.planning import Plan
from lmk_embed.results import unit
from lmk_embed.training import Batch, CorpusError, Recipe, Sampler, Targets, Teacher, read_corpus
from lmk_embed.training.losses import distillation_loss
from lmk_embed.training.teacher import passages
from training.sources import document, write_questions, write_texts

STUDENT = {"pooling": "landmark", "landmark_trained": True, "max_seq_length": 128}


def load(model: Path, **settings: object) -> Parts:
    options = {"revision": None, "device": "cpu", "dtype": "float32", "attn_implementation": None}
    return load_parts(model, settings, trust_remote_code=False, **options)


def sampler(parts: Parts, tmp_path: Path, *, queries: bool = False, seed: int = 0, **recipe: object) -> Sampler:
    texts = read_corpus([write_texts(tmp_path / "texts")], tmp_path / "cache")
    asked = (
        read_corpus([write_questions(tmp_path / "q")], tmp_path / "c2", field_names=("query",))
        if queries
        else None
    )
    settings = Recipe(**{"batch_tokens": 512, **recipe})
    return Sampler(parts.tokenizer, parts.config, parts.max_positions, texts, asked, None, settings, seed)


def same(one: Batch, other: Batch) -> bool:
    rows = [each.rows("landmark") for each in (one, other)]
    return len(rows[0]) == len(rows[1]) and all(
        np.array_equal(a.ids, b.ids) and a.segments == b.segments for a, b in zip(*rows, strict=True)
    )


def test_a_step_depends_on_seed_and_number_alone(tiny_model: Path, tmp_path: Path) -> None:
    parts = load(tiny_model, **STUDENT)
    one, other = sampler(parts, tmp_path, queries=True), sampler(parts, tmp_path, queries=True)
    forwards = {number: one.batch(number) for number in range(8)}
    backwards = {number: other.batch(number) for number in reversed(range(8))}
    assert all(same(forwards[number], backwards[number]) for number in forwards)
    assert not same(forwards[0], forwards[2])
    assert not same(forwards[0], sampler(parts, tmp_path, queries=True, seed=1).batch(0))


def test_rows_are_laid_out_as_in_use_and_as_long_as_in_use(tiny_model: Path, tmp_path: Path) -> None:
    parts = load(tiny_model, **STUDENT)
    drawn = sampler(parts, tmp_path, granularities=(8, 16))
    lengths = []
    for number in range(12):
        batch = drawn.batch(number)
        for plan, row in zip(batch.plans, batch.rows("landmark"), strict=True):
            lengths.append((number % 4, len(row)))
            assert row.chunks == tuple(range(len(plan.pieces)))
            assert [int(row.ids[a]) for a, _ in row.segments] == [parts.tokenizer.landmark_id] * len(plan.pieces)
            assert row.segments[-1][1] == len(row)
            assert max(map(len, plan.pieces)) <= 16
    assert max(length for kind, length in lengths if kind in (0, 2)) in range(100, 129)
    assert max(length for kind, length in lengths if kind == 1) in range(40, 65)
    assert np.mean([length for kind, length in lengths if kind == 3]) < 30
    assert sum(batch_tokens(drawn, number) for number in range(0, 12, 2)) <= 6 * 512


def batch_tokens(drawn: Sampler, number: int) -> int:
    return drawn.batch(number).n_tokens


def test_short_texts_are_sentences_and_questions(tiny_model: Path, tmp_path: Path) -> None:
    parts = load(tiny_model, **STUDENT)
    drawn = sampler(parts, tmp_path, queries=True)
    shorts = [
        plan.text for number in range(1, 60, 4) if number % 6 in (1, 5) for plan in drawn.batch(number).plans
    ]
    questions = [text for text in shorts if text.endswith("?")]
    assert 0.3 < len(questions) / len(shorts) < 0.7
    whole = {line.strip() for n in range(8) for line in document(n, 60).replace("\n\n", " ").split(".")}
    assert all(text.rstrip(".") in whole for text in shorts if not text.endswith("?"))


def test_prompts_stand_before_rows_of_their_role(tiny_model: Path, tmp_path: Path) -> None:
    parts = load(tiny_model, **STUDENT, query_prompt="question: ", document_prompt="passage: ")
    drawn = sampler(parts, tmp_path, queries=True)
    for number in (0, 1):
        batch = drawn.batch(number)
        for plan, row in zip(batch.plans, batch.rows("landmark"), strict=True):
            said = parts.tokenizer.backend.decode(row.ids.tolist())
            assert said.startswith("question :" if plan.text.endswith("?") else "passage :")


def test_text_without_spaces_and_tiny_texts_can_be_drawn(tiny_model: Path, tmp_path: Path) -> None:
    parts = load(tiny_model, **STUDENT)
    file = tmp_path / "a.txt"
    file.write_text("東京で家賃を支払う。賃貸借契約は双方が署名した日から効力を生じる。" * 200, encoding="utf-8")
    tiny = tmp_path / "b.txt"
    tiny.write_text("ok")
    texts = read_corpus([file, tiny], tmp_path / "cache")
    drawn = Sampler(
        parts.tokenizer, parts.config, parts.max_positions, texts, None, None, Recipe(batch_tokens=256), 0
    )
    assert all(plan.pieces for number in range(8) for plan in drawn.batch(number).plans)


def test_text_that_no_tokenizer_knows_is_an_error_not_an_endless_search(tiny_model: Path, tmp_path: Path) -> None:
    parts = load(tiny_model, **STUDENT)
    file = tmp_path / "a.txt"
    file.write_text("\x00\x01" * 50)
    texts = read_corpus([file], tmp_path / "cache")
    drawn = Sampler(parts.tokenizer, parts.config, parts.max_positions, texts, None, None, Recipe(), 0)
    with pytest.raises(CorpusError, match="hardly any text"):
        drawn.batch(0)


def passages_by_hand(plan: Plan, n_tokens: int) -> list[tuple[int, int]]:
    """Grow every second chunk one neighbour at a time, each side by itself."""
    spans = []
    for center in range(0, len(plan.pieces), 2):
        room = max(n_tokens - len(plan.pieces[center]), 0) // 2
        first = last = center
        left = right = room
        while first > 0 and len(plan.pieces[first - 1]) <= left:
            first -= 1
            left -= len(plan.pieces[first])
        while last + 1 < len(plan.pieces) and len(plan.pieces[last + 1]) <= right:
            last += 1
            right -= len(plan.pieces[last])
        spans.append((plan.pieces[first].start, plan.pieces[last].end))
    return spans


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_targets_are_the_chunk_alone_in_its_window_and_in_its_passage(
    tiny_model: Path, tmp_path: Path, pooling: RowPooling
) -> None:
    parts = load(tiny_model, **STUDENT, base_pooling=pooling)
    recipe = Recipe(batch_tokens=512, context_weight=0.7, passage_weight=0.4, passage_tokens=40)
    teacher = Teacher(parts.backend, pooling, recipe)
    batch = sampler(parts, tmp_path).batch(0)
    targets = teacher.targets(batch)
    in_window = LandmarkEncoder.from_pretrained(
        tiny_model, pooling="span_mean", context="window", max_seq_length=128
    )
    alone = LandmarkEncoder.from_pretrained(tiny_model, pooling=pooling, max_seq_length=128)
    at = 0
    for plan in batch.plans:
        spans = [(piece.start, piece.end) for piece in plan.pieces]
        text = plan.text[: spans[-1][1]]
        parts_of = [
            np.stack([chunk.vector for chunk in encoder.encode_document(text, spans=spans).chunks])
            for encoder in (alone, in_window)
        ]
        around = np.stack(
            [alone.encode_document(text[first:last]).vector for first, last in passages_by_hand(plan, 40)]
        )
        around = np.stack([around[at // 2 : (at + 1) // 2 + 1].mean(0) for at in range(len(spans))])
        expected = parts_of[0]
        if len(spans) > 1:
            expected = unit(parts_of[0] + 0.7 * parts_of[1] + 0.4 * unit(around))
        np.testing.assert_allclose(targets[at : at + len(spans)], expected, atol=2e-5)
        at += len(spans)
    assert at == len(targets)


def test_a_decoder_is_asked_at_its_last_token(tmp_path: Path) -> None:
    family = next(each for each in FAMILIES if each.name == "qwen3")
    family.build(tmp_path / "qwen3")
    parts = load(tmp_path / "qwen3", **STUDENT, base_pooling="lasttoken")
    batch = sampler(parts, tmp_path).batch(0)
    targets = Teacher(parts.backend, "lasttoken", Recipe(passage_weight=0)).targets(batch)
    alone = parts.backend.encode(batch.rows("lasttoken"))
    context = parts.backend.encode(batch.rows("landmark"))
    np.testing.assert_allclose(targets, unit(unit(alone) + unit(context)), atol=2e-5)


def test_short_texts_keep_the_vector_the_teacher_gives_them(tiny_model: Path, tmp_path: Path) -> None:
    parts = load(tiny_model, **STUDENT)
    batch = sampler(parts, tmp_path, queries=True).batch(1)
    single = [at for at, count in enumerate(batch.chunks) if count == 1]
    assert len(single) > 5
    targets = Teacher(parts.backend, "mean", Recipe()).targets(batch)
    encoder = LandmarkEncoder.from_pretrained(tiny_model, pooling="mean", granularity=None)
    starts = np.cumsum([0, *batch.chunks])
    expected = encoder.encode_queries([batch.plans[at].text for at in single])
    np.testing.assert_allclose(targets[starts[single]], expected, atol=2e-5)


@pytest.mark.parametrize("n_tokens", [1, 30, 60, 10_000])
def test_a_passage_holds_whole_chunks_around_its_own(tiny_model: Path, tmp_path: Path, n_tokens: int) -> None:
    parts = load(tiny_model, **STUDENT)
    for number in range(4):
        for plan in sampler(parts, tmp_path).batch(number).plans:
            around = passages(plan, n_tokens).pieces
            limit = min(n_tokens, plan.frame.capacity - 1)
            assert [(piece.start, piece.end) for piece in around] == passages_by_hand(plan, limit)
            for piece, own in zip(around, plan.pieces[::2], strict=True):
                assert piece.first <= own.first < own.last <= piece.last
                assert len(piece) <= max(limit, len(own))


def test_kept_targets_are_not_computed_again(tiny_model: Path, tmp_path: Path) -> None:
    parts = load(tiny_model, **STUDENT)
    batch = sampler(parts, tmp_path).batch(0)
    fresh = Targets(Teacher(parts.backend, "mean", Recipe()), tmp_path / "targets").of(batch)
    (tmp_path / "targets" / "9.part").write_bytes(b"what a killed process left")

    class NoTeacher(Teacher):
        def __init__(self) -> None:
            pass

    kept = Targets(NoTeacher(), tmp_path / "targets").of(batch)
    np.testing.assert_allclose(kept, fresh, atol=1e-3)
    np.testing.assert_allclose(np.linalg.norm(kept, axis=1), 1, atol=1e-6)


def test_the_loss_is_what_its_formula_says() -> None:
    targets = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    exact = distillation_loss(3 * targets, targets, Recipe())
    assert exact.total.item() == pytest.approx(0, abs=1e-6)
    states = torch.tensor([[2.0, 0.0], [1.0, 0.0]], requires_grad=True)
    recipe = Recipe(temperature=1.0, similarity_weight=0.5, norm_weight=2.0)
    parts = distillation_loss(states, targets, recipe)
    assert parts.cosine.item() == pytest.approx(0.5)
    same_, other = np.exp([1, 0]) / (np.e + 1)
    assert parts.similarity.item() == pytest.approx(
        (same_ * np.log(same_ / other) + other * np.log(other / same_)) / 2
    )
    assert parts.norm.item() == pytest.approx(0.25 / 2.25)
    assert parts.total.item() == pytest.approx(0.5 + 0.5 * parts.similarity.item() + 2 * 0.25 / 2.25)
    parts.total.backward()
    assert states.grad is not None
    assert float(states.grad[1].abs().sum()) > 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"granularities": ()},
        {"granularities": (0,)},
        {"fixed_share": 1.5},
        {"batch_tokens": 0},
        {"temperature": 0.0},
        {"passage_weight": -1.0},
        {"passage_tokens": 0},
        {"context_weight": float("nan")},
    ],
)
def test_impossible_recipes_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        Recipe(**wrong)


def test_the_default_config_is_the_one_that_is_trained() -> None:
    assert LandmarkConfig().granularity in Recipe().granularities
