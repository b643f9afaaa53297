"""Rankings to scores: document metrics by hand, and the way from vectors to both groups of metrics."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmk_embed.errors import ConfigError
from lmk_embed.evaluation import CorpusVectors, Cutoffs, Dataset, score, scoring
from lmk_embed.evaluation.documents import document_scores
from lmk_embed.evaluation.vectors import best_of, ranked
from lmk_embed.results import Matrix, unit


def vectors_of(
    counts: list[int], spans: list[tuple[int, int]], chunks: object, documents: object
) -> CorpusVectors:
    return CorpusVectors(
        counts=np.array(counts),
        spans=np.array(spans, dtype=np.int64).reshape(-1, 2),
        chunks=unit(np.array(chunks, dtype=np.float32)),
        documents=unit(np.array(documents, dtype=np.float32)),
        cut=np.zeros(len(counts), dtype=bool),
        seconds=0.0,
    )


class TestDocuments:
    IDS = ("a", "b", "c", "d")
    #: The ranking is b, a, d, c.
    SCORES = np.array([[0.8, 0.9, 0.1, 0.5]], dtype=np.float32)

    def one(self, qrels: dict[str, int], **options: str) -> dict[str, float]:
        found = document_scores(self.SCORES, self.IDS, ["q"], {"q": qrels}, **options)  # type: ignore[arg-type]
        return {name: float(values[0]) for name, values in found.items()}

    def test_binary(self) -> None:
        found = self.one({"a": 1, "c": 1})
        ideal = 1 + 1 / math.log2(3)
        assert found["ndcg@10"] == pytest.approx((1 / math.log2(3) + 1 / math.log2(5)) / ideal)
        assert found["mrr@10"] == 1 / 2
        assert found["recall@100"] == 1

    def test_graded_with_linear_gain_as_trec_eval_and_beir(self) -> None:
        found = self.one({"a": 3, "b": 1, "c": 0})
        assert found["ndcg@10"] == pytest.approx((1 + 3 / math.log2(3)) / (3 + 1 / math.log2(3)))

    def test_graded_with_exponential_gain(self) -> None:
        found = self.one({"a": 3, "b": 1, "c": 0}, gain="exponential")
        assert found["ndcg@10"] == pytest.approx((1 + 7 / math.log2(3)) / (7 + 1 / math.log2(3)))
        assert found["mrr@10"] == 1 and found["recall@100"] == 1

    def test_grade_zero_is_not_relevant(self) -> None:
        assert self.one({"b": 0, "c": 1})["mrr@10"] == 1 / 4

    def test_cutoffs(self) -> None:
        ids = [f"d{i}" for i in range(200)]
        scores = -np.arange(200, dtype=np.float32)[None]
        eleventh = document_scores(scores, ids, ["q"], {"q": {"d10": 1, "d150": 1}})
        assert eleventh["ndcg@10"][0] == 0 and eleventh["mrr@10"][0] == 0 and eleventh["recall@100"][0] == 0.5

    def test_equal_scores_keep_the_order_of_the_corpus(self) -> None:
        same = np.zeros((2, 3), dtype=np.float32)
        found = document_scores(same, ["z", "a", "m"], ["p", "q"], {"p": {"z": 1}, "q": {"m": 1}})
        assert found["mrr@10"].tolist() == [1, 1 / 3]


# Two documents of 100 and 50 characters and one blank; axis 0 is what query "x" asks for, axis 1 query "y".
DATA = Dataset(
    name="hand",
    documents={"long": "l" * 100, "blank": "", "short": "s" * 50},
    queries={"x": "?", "y": "?", "z": "?"},
    qrels={"x": {"long": 1}, "y": {"short": 1}, "z": {"short": 0}},
    spans={"x": {"long": ((10, 30),)}, "z": {"short": ((0, 10),), "long": ((90, 100),)}},
)
VECTORS = vectors_of(
    [2, 0, 1],
    [(0, 40), (40, 100), (0, 50)],
    [[1, 0, 0], [0, 1, 0], [0.6, 0, 0.8]],
    [[1, 0.5, 0], [0, 0, 1], [0.6, 0, 0.8]],
)
QUERIES: Matrix = unit(np.array([[0.8, 0.6, 0], [0, 0.1, 1], [0, 0, 1]], dtype=np.float32))


def test_every_metric_by_hand() -> None:
    spans, documents = score(DATA, VECTORS, QUERIES, Cutoffs(k=2, budget=100))
    assert spans.queries == ("x", "z") and documents.queries == ("x", "y")
    # x ranks long[0:40], long[40:100], short[0:50]; z ranks short[0:50], then the two others in order.
    assert spans.values["spans.recall@100chars"].tolist() == [1, 0.5]
    assert spans.values["spans.mrr@100"].tolist() == [1, 1]
    assert spans.values["spans.recall@2"].tolist() == [1, 0.5]
    assert spans.values["spans.precision@2"].tolist() == pytest.approx([20 / 100, 10 / 90])
    assert spans.values["spans.iou@2"].tolist() == pytest.approx([20 / 100, 10 / 100])
    # By best chunk: x has long .8, short .48; y has short .8, long .1. The blank document comes last.
    assert documents.values["best_chunk.mrr@10"].tolist() == [1, 1]
    # By document vector: y has blank first (1.0 on axis 2), then short.
    assert documents.values["document_vector.mrr@10"].tolist() == [1, 0.5]
    assert documents.values["document_vector.ndcg@10"].tolist() == pytest.approx([1, 1 / math.log2(3)])


def test_results_do_not_depend_on_blocks_or_on_how_far_the_first_look_goes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(5)
    n_docs, per, n_queries = 7, 60, 25
    starts = np.tile(np.arange(per) * 10, n_docs)
    vectors = vectors_of(
        [per] * n_docs,
        [(int(s), int(s) + 10) for s in starts],
        rng.normal(size=(n_docs * per, 8)),
        rng.normal(size=(n_docs, 8)),
    )
    names = [f"q{i}" for i in range(n_queries)]
    gold = {q: {f"d{rng.integers(n_docs)}": ((int(rng.integers(500)), 600),)} for q in names}
    data = Dataset(
        "random",
        {f"d{i}": "x" * 600 for i in range(n_docs)},
        dict.fromkeys(names, "?"),
        {q: {doc: 1 for doc in gold[q]} for q in names},
        gold,
    )
    queries = unit(rng.normal(size=(n_queries, 8)).astype(np.float32))
    cutoffs = Cutoffs(k=3, budget=2500)  # 250 chunks of 10 characters, more than the first look of 100
    expected = score(data, vectors, queries, cutoffs)
    recall = expected[0].values["spans.recall@2500chars"]
    sims = queries @ vectors.chunks.T
    for row, query in enumerate(names):
        (doc, ((start, end),)) = next(iter(gold[query].items()))
        top = np.argsort(-sims[row], kind="stable")[:250]
        got = {c for j in top if j // per == int(doc[1:]) for c in range(starts[j], starts[j] + 10)}
        assert recall[row] == len(got & set(range(start, end))) / (end - start)
    monkeypatch.setattr(scoring, "_BLOCK", 1000)
    monkeypatch.setattr(scoring, "DEPTH", 7)
    again = score(data, vectors, queries, cutoffs)
    for one, other in zip(expected, again, strict=True):
        for metric in one.values.keys() - {"spans.mrr@100"}:
            assert np.array_equal(one.values[metric], other.values[metric])


def test_a_corpus_without_a_single_chunk_scores_zero() -> None:
    data = Dataset("blank", {"a": "   "}, {"q": "?"}, {"q": {"a": 1}}, {"q": {"a": ((0, 2),)}})
    vectors = vectors_of([0], [], np.empty((0, 3)), [[1, 0, 0]])
    spans, documents = score(data, vectors, QUERIES[:1])
    assert all(values.tolist() == [0] for values in spans.values.values())
    assert documents.values["document_vector.mrr@10"].tolist() == [1]


def test_sets_without_spans_or_without_relevant_documents_have_one_group() -> None:
    no_spans = Dataset("d", DATA.documents, DATA.queries, DATA.qrels, {})
    assert [scores.group for scores in score(no_spans, VECTORS, QUERIES)] == ["documents"]
    no_qrels = Dataset("s", DATA.documents, DATA.queries, {}, DATA.spans)
    assert [scores.group for scores in score(no_qrels, VECTORS, QUERIES)] == ["spans"]


@given(st.integers(0, 10_000), st.integers(1, 12), st.integers(1, 12))
def test_ranked_is_the_head_of_a_stable_sort(seed: int, width: int, depth: int) -> None:
    scores = np.random.default_rng(seed).integers(0, 4, size=(3, width)).astype(np.float32)
    assert np.array_equal(ranked(scores, depth), np.argsort(-scores, axis=1, kind="stable")[:, :depth])


@given(st.lists(st.integers(0, 3), min_size=1, max_size=6), st.integers(0, 10_000))
def test_best_chunk_and_smoothing_stay_within_documents(counts: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = sum(counts)
    sims = rng.normal(size=(2, n)).astype(np.float32)
    best = best_of(sims, np.array(counts))
    edges = np.cumsum([0, *counts])
    vectors = vectors_of(counts, [(0, 1)] * n, rng.normal(size=(n, 4)), rng.normal(size=(len(counts), 4)))
    if n == 0:
        assert (best == -1).all()
        return
    smooth = vectors.smoothed(0.3)
    for doc, (first, last) in enumerate(pairwise(edges)):
        if first == last:
            assert (best[:, doc] == -1).all()
            assert np.array_equal(smooth.documents[doc], vectors.documents[doc])
            continue
        assert np.array_equal(best[:, doc], sims[:, first:last].max(axis=1))
        own = vectors.chunks[first:last]
        padded = np.vstack([np.zeros((1, 4)), own, np.zeros((1, 4))])
        expected = unit((own + 0.3 * (padded[:-2] + padded[2:])).astype(np.float32))
        assert smooth.chunks[first:last] == pytest.approx(expected, abs=1e-6)
        assert smooth.documents[doc] == pytest.approx(unit(expected.mean(axis=0)), abs=1e-6)


@pytest.mark.parametrize(("name", "options"), [("k", {"k": 0}), ("budget", {"budget": -1})])
def test_impossible_cutoffs(name: str, options: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match=f"{name} must be at least 1"):
        Cutoffs(**options)
