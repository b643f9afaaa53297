"""Coarser spans at search time: the same as encoding at that granularity from the same pass."""

import itertools

import numpy as np
import pytest
from chroma_fakes import FakeEncoder, sample_text

from chroma_lmk import Hit, LandmarkStore, QueryError
from lmk_embed.results import Document

QUERIES = ["zebra", "w5 w6 w7", "w250 zebra w11"]
SIZES = [1, 8, 16, 24, 100, 10_000]


def library(count: int = 12, words: int = 90) -> list[Document]:
    return [
        Document(
            f"d{n}", sample_text(n, words + n % 12 * 7, "" if n % 3 else "zebra"), {"kind": n % 2, "no": None}
        )
        for n in range(count)
    ]


def expected(encoder: FakeEncoder, documents: list[Document], query: str, size: int) -> list[tuple]:
    """Id, span, text and score of every span, best first, from the encoder alone."""
    vector = encoder.encode_queries([query])[0]
    spans = [
        (each.id, chunk.start, chunk.end, chunk.text, float(chunk.vector @ vector))
        for each in documents
        for chunk in encoder.encode_document(each.text).merge(size).chunks
    ]
    return sorted(spans, key=lambda span: (-span[4], span[0], span[1]))


def assert_same(hits: list[Hit], spans: list[tuple]) -> None:
    assert [(hit.doc_id, hit.start, hit.end, hit.text) for hit in hits] == [span[:4] for span in spans]
    assert [hit.score for hit in hits] == pytest.approx([span[4] for span in spans], abs=1e-5)


@pytest.mark.parametrize("size", SIZES)
def test_spans_are_those_of_merge(store: LandmarkStore, encoder: FakeEncoder, size: int) -> None:
    documents = library()
    store.add(documents)
    for query, k in itertools.product(QUERIES, (1, 7, 500)):
        hits = store.search(query, k, max_tokens=size)
        assert_same(hits, expected(encoder, documents, query, size)[:k])
        assert all(hit.metadata["no"] is None and set(hit.metadata) == {"kind", "no"} for hit in hits)


@pytest.mark.parametrize("size", SIZES)
def test_documents_are_ranked_by_their_spans(store: LandmarkStore, encoder: FakeEncoder, size: int) -> None:
    documents = library()
    store.add(documents)
    vector = encoder.encode_queries(["zebra w5"])[0]
    spans = expected(encoder, documents, "zebra w5", size)
    best = list({span[0]: span for span in reversed(spans)}.values())[::-1]
    best.sort(key=lambda span: (-span[4], span[0]))
    assert_same(store.search("zebra w5", 5, per="document", max_tokens=size), best[:5])
    for kind in ("mean", "document_vector"):
        scores = {}
        for each in documents:
            merged = encoder.encode_document(each.text).merge(size)
            own = [float(chunk.vector @ vector) for chunk in merged.chunks]
            scores[each.id] = float(np.mean(own)) if kind == "mean" else float(merged.vector @ vector)
        hits = store.search("zebra w5", 5, per="document", max_tokens=size, document_score=kind)
        assert [hit.doc_id for hit in hits] == sorted(scores, key=lambda name: -scores[name])[:5]
        assert [hit.score for hit in hits] == pytest.approx([scores[hit.doc_id] for hit in hits], abs=1e-5)
        spans_of = {span[0]: span for span in reversed(spans)}
        assert [hit.text for hit in hits] == [spans_of[hit.doc_id][3] for hit in hits]


def test_passages_are_made_of_spans(store: LandmarkStore, encoder: FakeEncoder) -> None:
    documents = library()
    texts = {each.id: each.text for each in documents}
    store.add(documents)
    spans = expected(encoder, documents, "zebra", 24)
    places = {span[:3] for span in spans}
    hits = store.search("zebra", 4, per="passage", max_tokens=24, max_chars=600)
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert hits[0].score == pytest.approx(spans[0][4], abs=1e-5)
    for hit in hits:
        assert hit.text == texts[hit.doc_id][hit.start : hit.end]
        assert len(hit.text) <= 600
        assert {(hit.doc_id, match.start, match.end) for match in hit.matches} <= places
        assert all(hit.start <= match.start < match.end <= hit.end for match in hit.matches)
    assert any(hit.end - hit.start > spans[0][2] - spans[0][1] for hit in hits), "they grow"
    (whole,) = store.search("zebra", 1, per="passage", max_tokens=24, max_chars=100_000)
    assert whole.whole


def test_a_joined_span_may_be_nearer_than_each_of_its_chunks(local_store: LandmarkStore) -> None:
    """Neither chunk alone is near; together they are: a ranking by chunks would miss it."""
    halves = "left " * 8 + "right " * 8
    local_store.add([Document("both", halves), Document("one", "left " * 7 + "x " + "y " * 8)])
    (hit,) = local_store.search("left right", 1, max_tokens=16)
    (chunk,) = local_store.search("left right", 1)
    assert (hit.doc_id, hit.text) == ("both", halves.strip())
    assert hit.score == pytest.approx(1, abs=1e-5)
    assert hit.whole
    assert chunk.score < 0.9


def test_filters_and_the_lowest_score_hold_for_spans(store: LandmarkStore, encoder: FakeEncoder) -> None:
    documents = library()
    store.add(documents)
    odd = [each for each in documents if each.metadata["kind"] == 1]
    spans = expected(encoder, odd, "zebra", 16)
    assert_same(store.search("zebra", 300, max_tokens=16, where={"kind": 1}), spans)
    lowest = spans[4][4] - 1e-4
    hits = store.search("zebra", 300, max_tokens=16, where={"kind": 1}, min_score=lowest)
    assert_same(hits, [span for span in spans if span[4] >= lowest])
    with_word = [span for span in expected(encoder, documents, "w5", 16) if "w77" in span[3]]
    assert with_word
    hits = store.search("w5", 300, max_tokens=16, where_document={"$contains": "w77"})
    assert_same(hits, with_word)


def test_matches_of_a_span_name_a_stored_chunk(store: LandmarkStore, encoder: FakeEncoder) -> None:
    documents = library()
    store.add(documents)
    texts = {each.id: each.text for each in documents}
    query = encoder.encode_queries(["zebra"])[0]
    for per in ("chunk", "passage", "document"):
        hits = store.search("zebra", 5, per=per, max_tokens=24)
        for hit, vector in zip(hits, store.vectors(hits), strict=True):
            chunks = encoder.encode_document(texts[hit.doc_id]).chunks
            match = hit.matches[0]
            inside = [chunk for chunk in chunks if match.start <= chunk.start < match.end]
            best = max(inside, key=lambda chunk: float(chunk.vector @ query))
            assert match.chunk == best.index
            assert np.allclose(vector, best.vector, atol=1e-5)


@pytest.mark.parametrize("size", [0, -1, True, 2.5, "16"])
def test_an_impossible_granularity_is_refused(local_store: LandmarkStore, size: object) -> None:
    with pytest.raises(QueryError, match="max_tokens must be a whole number of at least 1"):
        local_store.search("x", max_tokens=size)


def test_a_large_collection_is_searched_by_its_best_documents(
    local_store: LandmarkStore, encoder: FakeEncoder
) -> None:
    """Beyond a thousand chunks, only the documents that own the best ones are read."""
    documents = library(120, 80)
    local_store.add(documents)
    assert local_store.count() > 1_000
    for query in QUERIES:
        wanted = expected(encoder, documents, query, 24)[:5]
        hits = local_store.search(query, 5, max_tokens=24)
        scores = {span[:3]: span[4] for span in expected(encoder, documents, query, 24)}
        assert all(hit.score == pytest.approx(scores[hit.doc_id, hit.start, hit.end], abs=1e-5) for hit in hits)
        assert hits[0].text == wanted[0][3]
        assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
