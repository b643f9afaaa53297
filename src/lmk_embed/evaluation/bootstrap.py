"""Confidence intervals by the bootstrap over queries, paired: every system is judged on the same drawn queries."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

#: Counts drawn at once; bounds memory whatever the number of queries.
_BLOCK = 1_000_000


class Estimate(NamedTuple):
    """A mean over queries and its confidence interval."""

    mean: float
    low: float
    high: float


def resampled_means(scores: Floats, n_resamples: int, seed: int | list[int]) -> Floats:
    """Return the means of columns over queries drawn with replacement.

    A row of the result holds all columns for the *same* draw, so the difference of two columns is a paired
    resample of their difference.

    Parameters
    ----------
    scores : ndarray of float64, shape (n_queries, n_columns)
    n_resamples : int
    seed : int or list of int

    Returns
    -------
    ndarray of float64, shape (n_resamples, n_columns)

    Examples
    --------
    >>> means = resampled_means(np.array([[0.0, 1.0], [1.0, 2.0]]), 4, seed=0)
    >>> (means[:, 1] - means[:, 0]).tolist()
    [1.0, 1.0, 1.0, 1.0]
    """
    n = len(scores)
    rng = np.random.default_rng(seed)
    block = max(1, _BLOCK // n)
    # How often each query is drawn: the means of all columns are then one matrix product.
    draws = (
        rng.multinomial(n, np.full(n, 1 / n), size=min(block, n_resamples - done))
        for done in range(0, n_resamples, block)
    )
    return np.concatenate([counts @ scores / n for counts in draws])


def interval(mean: float, resamples: Floats, confidence: float) -> Estimate:
    """Return the percentile interval of resampled means.

    Parameters
    ----------
    mean : float
        Of the queries themselves.
    resamples : ndarray of float64, shape (n_resamples,)
    confidence : float
        Such as 0.95.

    Examples
    --------
    >>> interval(0.5, np.linspace(0, 1, 5), confidence=0.5)
    Estimate(mean=0.5, low=0.25, high=0.75)
    """
    tail = (1 - confidence) / 2
    low, high = np.quantile(resamples, [tail, 1 - tail])
    return Estimate(float(mean), float(low), float(high))
