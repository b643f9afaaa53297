"""Span metrics: small cases worked out by hand, and what must hold for any ranking."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmk_embed.evaluation.spans import (
    Intervals,
    budget_recall,
    lengths,
    merged,
    n_covered,
    n_within,
    overlaps,
    reciprocal_rank,
    top_scores,
)


def spans(*pairs: tuple[int, int]) -> Intervals:
    return np.array(pairs, dtype=np.int64).reshape(-1, 2)


intervals = st.lists(
    st.tuples(st.integers(0, 60), st.integers(1, 20)).map(lambda p: (p[0], p[0] + p[1])), max_size=12
).map(lambda pairs: spans(*pairs))
some_intervals = intervals.filter(len)


def characters(found: Intervals) -> set[int]:
    return {at for start, end in found.tolist() for at in range(start, end)}


# One document of 1,000 characters; gold 100-200 and 500-520. Chunks in the order of retrieval:
GOLD = spans((100, 200), (500, 520))
RANKED = spans((0, 130), (510, 560), (90, 140), (140, 300), (600, 900))


def test_recall_within_a_budget_by_hand() -> None:
    assert budget_recall(RANKED, GOLD, 129) == 0, "not even the first chunk fits"
    assert budget_recall(RANKED, GOLD, 130) == 30 / 120
    assert budget_recall(RANKED, GOLD, 180) == 40 / 120
    assert budget_recall(RANKED, GOLD, 230) == 50 / 120, "100-130 is retrieved twice and counts once"
    assert budget_recall(RANKED, GOLD, 389) == 50 / 120
    assert budget_recall(RANKED, GOLD, 390) == 110 / 120
    assert budget_recall(RANKED, GOLD, 10_000) == 110 / 120


def test_a_chunk_that_does_not_fit_ends_the_list() -> None:
    assert budget_recall(spans((0, 10), (50, 90), (100, 110)), spans((100, 110)), budget=20) == 0


def test_reciprocal_rank_by_hand() -> None:
    # The first chunk has 30 of 100 characters, the second 10 of 20: exactly half counts.
    assert reciprocal_rank(RANKED, GOLD) == 1 / 2
    assert reciprocal_rank(RANKED, spans((100, 200))) == 1 / 4
    assert reciprocal_rank(RANKED, spans((0, 1000))) == 0
    assert reciprocal_rank(RANKED, spans((100, 200)), depth=3) == 0


def test_touching_gold_spans_are_one() -> None:
    assert merged(spans((150, 200), (100, 150))).tolist() == [[100, 200]]
    assert reciprocal_rank(spans((100, 149), (100, 150)), merged(spans((150, 200), (100, 150)))) == 1 / 2


def test_top_scores_by_hand() -> None:
    # Three chunks of 130 + 50 + 50 = 230 characters; gold found: 100-140 and 510-520, which is 50 of 120.
    found = top_scores(RANKED, GOLD, k=3)
    assert found == (50 / (230 + 120 - 50), 50 / 230, 50 / 120)
    assert top_scores(RANKED, GOLD, k=99) == top_scores(RANKED, GOLD, k=5)


def test_nothing_retrieved() -> None:
    nothing = spans()
    assert budget_recall(nothing, GOLD, 3000) == 0
    assert reciprocal_rank(nothing, GOLD) == 0
    assert top_scores(nothing, GOLD, k=5) == (0, 0, 0)


@given(intervals)
def test_merging_keeps_exactly_the_characters(found: Intervals) -> None:
    union = merged(found)
    assert characters(union) == characters(found)
    assert int(lengths(union).sum()) == len(characters(found))
    assert (union[1:, 0] > union[:-1, 1]).all()


@given(intervals, some_intervals)
def test_counts_agree_with_sets_of_characters(chunks: Intervals, gold: Intervals) -> None:
    gold = merged(gold)
    assert n_covered(chunks, gold) == len(characters(chunks) & characters(gold))
    shared = overlaps(chunks, gold)
    for i, chunk in enumerate(chunks):
        for j, span in enumerate(gold):
            assert shared[i, j] == len(characters(chunk[None]) & characters(span[None]))


@given(intervals, some_intervals, st.integers(1, 8))
def test_top_scores_agree_with_sets_of_characters(chunks: Intervals, gold: Intervals, k: int) -> None:
    gold = merged(gold)
    found = top_scores(chunks, gold, k)
    hit = len(characters(chunks[:k]) & characters(gold))
    size = sum(end - start for start, end in chunks[:k].tolist())
    assert found.recall == hit / len(characters(gold))
    assert found.precision == (hit / size if size else 0)
    assert found.iou == hit / (size + len(characters(gold)) - hit)
    if found.precision and found.recall:
        assert 1 / found.iou == pytest.approx(1 / found.precision + 1 / found.recall - 1)


@given(intervals, some_intervals, st.integers(1, 300), st.integers(0, 300))
def test_recall_never_falls_with_the_budget(chunks: Intervals, gold: Intervals, budget: int, more: int) -> None:
    gold = merged(gold)
    assert budget_recall(chunks, gold, budget) <= budget_recall(chunks, gold, budget + more) <= 1
    kept = chunks[: n_within(chunks, budget)]
    assert lengths(kept).sum() <= budget


@given(some_intervals)
def test_a_perfect_ranking_scores_one(gold: Intervals) -> None:
    gold = merged(gold)
    assert budget_recall(gold, gold, int(lengths(gold).sum())) == 1
    assert reciprocal_rank(gold, gold) == 1
    assert top_scores(gold, gold, k=len(gold)) == (1, 1, 1)


@given(intervals, some_intervals, st.integers(0, 500))
def test_what_counts_is_where_not_what_number(chunks: Intervals, gold: Intervals, shift: int) -> None:
    gold = merged(gold)
    assert top_scores(chunks, gold, 5) == top_scores(chunks + shift, gold + shift, 5)
    assert reciprocal_rank(chunks, gold) == reciprocal_rank(chunks + shift, gold + shift)


@given(intervals, some_intervals)
def test_reciprocal_rank_is_that_of_the_first_answer(chunks: Intervals, gold: Intervals) -> None:
    gold = merged(gold)
    rank = reciprocal_rank(chunks, gold)

    def answers(chunk: list[int]) -> bool:
        return any(
            Fraction(len(set(range(*chunk)) & set(range(*span))), span[1] - span[0]) >= Fraction(1, 2)
            for span in gold.tolist()
        )

    expected = next((at for at, chunk in enumerate(chunks.tolist(), start=1) if answers(chunk)), None)
    assert rank == (1 / expected if expected else 0)
