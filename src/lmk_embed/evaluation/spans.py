"""How well a ranking of chunks brings back gold characters; pure numpy.

All functions take half-open character intervals as integer arrays of shape (n, 2) on one axis on which documents
lie one after the other, so that equal numbers mean the same character of the same document. *Ranked* chunks are
in the order of retrieval, best first. Gold intervals are merged first (:func:`merged`), so a character counts
once however often it is marked.

Notation: ``G`` the set of gold characters, ``c_1, c_2, …`` the ranked chunks as sets of characters, ``|·|`` a
number of characters.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Intervals = NDArray[np.int64]

#: A chunk answers a query if it holds this share of some gold span.
COVER = 0.5
#: Ranks looked at for the first answering chunk.
DEPTH = 100


class TopScores(NamedTuple):
    """Scores of the first chunks taken together, each in [0, 1]."""

    iou: float
    precision: float
    recall: float


def merged(intervals: Intervals) -> Intervals:
    """Return the union of intervals: sorted, apart from each other; those that touch become one.

    Parameters
    ----------
    intervals : ndarray of int64, shape (n, 2)

    Returns
    -------
    ndarray of int64, shape (m, 2)

    Examples
    --------
    >>> merged(np.array([[5, 9], [0, 3], [8, 12], [3, 4]])).tolist()
    [[0, 4], [5, 12]]
    """
    if len(intervals) < 2:
        return intervals
    ordered = intervals[np.argsort(intervals[:, 0], kind="stable")]
    reach = np.maximum.accumulate(ordered[:, 1])
    opens = np.append(True, ordered[1:, 0] > reach[:-1])
    closes = np.append(opens[1:], True)
    return np.stack([ordered[opens, 0], reach[closes]], axis=1)


def lengths(intervals: Intervals) -> NDArray[np.int64]:
    """Return the number of characters of each interval, shape (n,)."""
    return np.asarray(intervals[:, 1] - intervals[:, 0])


def overlaps(left: Intervals, right: Intervals) -> NDArray[np.int64]:
    """Return how many characters each pair of intervals shares.

    Parameters
    ----------
    left : ndarray of int64, shape (n, 2)
    right : ndarray of int64, shape (m, 2)

    Returns
    -------
    ndarray of int64, shape (n, m)

    Examples
    --------
    >>> overlaps(np.array([[0, 10], [20, 30]]), np.array([[5, 25]])).tolist()
    [[5], [5]]
    """
    starts = np.maximum(left[:, None, 0], right[None, :, 0])
    ends = np.minimum(left[:, None, 1], right[None, :, 1])
    return np.asarray(np.maximum(ends - starts, 0))


def n_covered(chunks: Intervals, gold: Intervals) -> int:
    """Return the number of gold characters that lie in at least one chunk.

    Parameters
    ----------
    chunks : ndarray of int64, shape (n, 2)
    gold : ndarray of int64, shape (m, 2)
        Merged.
    """
    return int(overlaps(merged(chunks), gold).sum())


def n_within(ranked: Intervals, budget: int) -> int:
    """Return how many chunks from the top fit into a number of characters.

    The first chunk that does not fit ends the list, even if a later one were short enough. Characters that
    overlapping chunks share are paid for each time, as a prompt would hold them each time.

    Parameters
    ----------
    ranked : ndarray of int64, shape (n, 2)
    budget : int

    Examples
    --------
    >>> n_within(np.array([[0, 40], [50, 90], [100, 105]]), 80)
    2
    >>> n_within(np.array([[0, 40], [50, 100], [100, 105]]), 80)
    1
    """
    return int(np.searchsorted(np.cumsum(lengths(ranked)), budget, side="right"))


def budget_recall(ranked: Intervals, gold: Intervals, budget: int) -> float:
    r"""Return the recall of gold characters within a budget of retrieved characters.

    .. math:: R_B = \frac{|G \cap (c_1 \cup \dots \cup c_b)|}{|G|}, \qquad
              b = \max \{ i : |c_1| + \dots + |c_i| \le B \}

    Unlike a recall at some number of chunks it does not reward a system for long chunks.

    Parameters
    ----------
    ranked : ndarray of int64, shape (n, 2)
        As far down the ranking as the budget reaches, or further.
    gold : ndarray of int64, shape (m, 2)
        Merged, at least one.
    budget : int
        ``B``.

    Examples
    --------
    >>> budget_recall(np.array([[0, 50], [200, 250], [50, 100]]), np.array([[40, 80]]), budget=100)
    0.25
    """
    return n_covered(ranked[: n_within(ranked, budget)], gold) / int(lengths(gold).sum())


def reciprocal_rank(ranked: Intervals, gold: Intervals, depth: int = DEPTH) -> float:
    r"""Return the reciprocal rank of the first chunk that covers half of a gold span.

    .. math:: RR = 1 / \min \{ i \le \mathit{depth} : \exists g \in \mathit{gold}, \; |c_i \cap g| \ge |g| / 2 \}

    and 0 if there is none. A gold span more than twice as long as the chunks cannot be found in this sense.

    Parameters
    ----------
    ranked : ndarray of int64, shape (n, 2)
    gold : ndarray of int64, shape (m, 2)
        Merged.
    depth : int
        Ranks looked at.

    Examples
    --------
    >>> reciprocal_rank(np.array([[0, 10], [40, 60], [10, 40]]), np.array([[10, 20], [45, 85]]))
    0.3333333333333333
    """
    answers = (overlaps(ranked[:depth], gold) >= COVER * lengths(gold)).any(axis=1)
    first = np.flatnonzero(answers)
    return 1 / (int(first[0]) + 1) if len(first) else 0.0


def top_scores(ranked: Intervals, gold: Intervals, k: int) -> TopScores:
    r"""Return IoU, precision and recall of the first ``k`` chunks, as Chroma's chunking report defines them.

    With :math:`C = c_1 \cup \dots \cup c_k` and :math:`S = |c_1| + \dots + |c_k|`, in which characters of
    overlapping chunks count each time, so that overlap costs precision:

    .. math:: \mathit{recall} = \frac{|G \cap C|}{|G|}, \qquad
              \mathit{precision} = \frac{|G \cap C|}{S}, \qquad
              \mathit{IoU} = \frac{|G \cap C|}{S + |G| - |G \cap C|}

    The report counts tokens in its formulas and characters in its code; this counts characters. Where its
    references overlap each other, it counts the shared characters twice in the denominator of the recall; this
    does not.

    Parameters
    ----------
    ranked : ndarray of int64, shape (n, 2)
    gold : ndarray of int64, shape (m, 2)
        Merged, at least one.
    k : int

    References
    ----------
    B. Smith and A. Troynikov, "Evaluating Chunking Strategies for Retrieval", Chroma Technical Report, 2024.

    Examples
    --------
    >>> top_scores(np.array([[0, 50], [200, 250], [50, 100]]), np.array([[40, 80]]), k=2)
    TopScores(iou=0.07692307692307693, precision=0.1, recall=0.25)
    """
    top = ranked[:k]
    size, total, found = int(lengths(top).sum()), int(lengths(gold).sum()), n_covered(top, gold)
    return TopScores(
        iou=found / (size + total - found),
        precision=found / size if size else 0.0,
        recall=found / total,
    )
