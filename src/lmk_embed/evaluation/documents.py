"""Document metrics, by ir-measures: the figures that BEIR, MTEB and trec_eval report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from lmk_embed.errors import missing_extra
from lmk_embed.evaluation.vectors import ranked
from lmk_embed.results import Matrix

Gain = Literal["linear", "exponential"]

#: Our names of the metrics, and those of ir-measures.
MEASURES = {"ndcg@10": "nDCG@10", "recall@100": "R@100", "mrr@10": "RR@10"}
#: How far down the ranking they look.
DEPTH = 100


def document_scores(
    scores: Matrix,
    documents: Sequence[str],
    queries: Sequence[str],
    qrels: Mapping[str, Mapping[str, int]],
    *,
    gain: Gain = "linear",
) -> dict[str, NDArray[np.float64]]:
    r"""Score rankings of documents.

    .. math:: \mathit{nDCG@10} = \frac{1}{Z} \sum_{i=1}^{10} \frac{\mathit{gain}(r_i)}{\log_2 (i + 1)}, \qquad
              R@100 = \frac{|\text{relevant} \cap \text{first } 100|}{|\text{relevant}|}, \qquad
              RR@10 = 1 / \min \{ i \le 10 : r_i > 0 \}

    with ``r_i`` the grade of the document at rank ``i`` and ``Z`` the value of the best possible ranking.
    ir-measures (and trec_eval, BEIR and MTEB with it) uses the grade itself as gain, ``gain(r) = r``; the other
    convention is ``gain(r) = 2**r - 1``. With grades 0 and 1 both are the same.

    Parameters
    ----------
    scores : ndarray of float32, shape (n_queries, n_documents)
        Higher is better; of equals the document that comes first in the corpus is ranked first.
    documents : sequence of str
        Ids, as the columns of ``scores``.
    queries : sequence of str
        Ids, as the rows of ``scores``; each must have a relevant document.
    qrels : mapping of str to mapping of str to int
    gain : {"linear", "exponential"}

    Returns
    -------
    dict of str to ndarray of float64, shape (n_queries,)
        By the names in :data:`MEASURES`.

    Raises
    ------
    MissingExtraError
        If ir-measures is not installed.

    Examples
    --------
    >>> scores = np.array([[0.9, 0.8, 0.1]], dtype=np.float32)
    >>> document_scores(scores, ["a", "b", "c"], ["q"], {"q": {"b": 1}})["mrr@10"]
    array([0.5])
    """
    try:
        import ir_measures
    except ImportError as error:
        raise missing_extra("ir-measures", "eval") from error

    measures = {ir_measures.parse_measure(theirs): ours for ours, theirs in MEASURES.items()}
    rows = {query: index for index, query in enumerate(queries)}
    judged = {query: {doc: _gain(grade, gain) for doc, grade in qrels[query].items()} for query in queries}
    order = ranked(scores, DEPTH)
    # Ranks instead of scores: trec_eval would break ties by its own rule and compares in single precision.
    run = {
        query: {documents[column]: float(-rank) for rank, column in enumerate(order[index].tolist())}
        for query, index in rows.items()
    }
    found = {name: np.zeros(len(queries)) for name in MEASURES}
    for result in ir_measures.iter_calc(list(measures), judged, run):
        found[measures[result.measure]][rows[result.query_id]] = result.value
    return found


def _gain(grade: int, gain: Gain) -> int:
    # Changing the grades changes no set of relevant documents, so recall and reciprocal rank stay what they are.
    return grade if gain == "linear" else 2**grade - 1
