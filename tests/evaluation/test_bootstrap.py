"""Confidence intervals: right on average, paired, and the same every time."""

from __future__ import annotations

import numpy as np
import pytest

from lmk_embed.evaluation import bootstrap
from lmk_embed.evaluation.bootstrap import interval, resampled_means


def test_resamples_scatter_as_the_standard_error_says() -> None:
    scores = np.random.default_rng(1).normal(0.4, 0.2, size=(400, 1))
    means = resampled_means(scores, 4000, seed=0)[:, 0]
    assert means.mean() == pytest.approx(scores.mean(), abs=0.001)
    assert means.std() == pytest.approx(scores.std() / 20, rel=0.05)
    found = interval(float(scores.mean()), means, 0.95)
    assert (found.high - found.low) / 2 == pytest.approx(1.96 * scores.std() / 20, rel=0.06)


def test_pairing_makes_a_small_difference_visible() -> None:
    rng = np.random.default_rng(2)
    first = rng.uniform(size=200)
    scores = np.stack([first, first + 0.02 + rng.normal(0, 0.01, size=200)], axis=1)
    draws = resampled_means(scores, 1000, seed=0)
    difference = interval(0.02, draws[:, 1] - draws[:, 0], 0.95)
    assert 0.015 < difference.low < 0.02 < difference.high < 0.025
    alone = interval(0.5, draws[:, 0], 0.95)
    assert alone.high - alone.low > 0.05, "either mean alone is far less certain than their difference"


def test_seeds_and_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = np.random.default_rng(3).uniform(size=(30, 2))
    one = resampled_means(scores, 50, seed=[0, 7])
    assert np.array_equal(one, resampled_means(scores, 50, seed=[0, 7]))
    assert not np.array_equal(one, resampled_means(scores, 50, seed=[1, 7]))
    monkeypatch.setattr(bootstrap, "_BLOCK", 100)
    assert np.allclose(one, resampled_means(scores, 50, seed=[0, 7]))


def test_a_single_query_or_equal_scores_have_no_spread() -> None:
    assert np.array_equal(resampled_means(np.array([[0.25]]), 10, seed=0), np.full((10, 1), 0.25))
    assert np.allclose(resampled_means(np.full((7, 1), 0.3), 10, seed=0), 0.3)
