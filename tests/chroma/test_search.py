"""Searching: what k counts, what a score is, what a passage holds."""

import itertools

import numpy as np
import pytest
from chroma_fakes import FakeEncoder, VectorEncoder, sample_text

from chroma_lmk import Hit, LandmarkStore, QueryError
from lmk_embed.results import Document


@pytest.fixture
def exact_store(connect: object, collection: str) -> LandmarkStore:
    with LandmarkStore(connect(), collection, VectorEncoder(dimension=3)) as opened:
        yield opened


def near(cosine: float) -> str:
    """A vector with this cosine to "1 0 0"."""
    return f"{cosine} {np.sqrt(1 - cosine**2)} 0"


def case_21(store: LandmarkStore) -> None:
    store.add(
        [
            Document("A", "\n".join(f"{near(0.95 - n / 1000)} chunk {n}" for n in range(50)), {"kind": "a"}),
            Document("B", near(0.8), {"kind": "b"}),
            Document("C", near(0.7), {"kind": "c"}),
        ]
    )


def test_case_21_k_counts_documents(exact_store: LandmarkStore) -> None:
    case_21(exact_store)
    hits = exact_store.search("1 0 0", k=3, per="document")
    assert [hit.doc_id for hit in hits] == ["A", "B", "C"]
    assert hits[0].text.endswith("chunk 0")
    assert [round(hit.score, 4) for hit in hits] == [0.95, 0.8, 0.7]


def test_case_21_filters_come_before_grouping(exact_store: LandmarkStore) -> None:
    case_21(exact_store)
    hits = exact_store.search("1 0 0", k=3, per="document", where={"kind": {"$ne": "b"}})
    assert [hit.doc_id for hit in hits] == ["A", "C"]


def test_case_21_k_counts_chunks(exact_store: LandmarkStore) -> None:
    case_21(exact_store)
    assert [hit.text.split()[-1] for hit in exact_store.search("1 0 0", k=4)] == ["0", "1", "2", "3"]
    assert len(exact_store.search("1 0 0", k=1_000)) == 52


@pytest.mark.parametrize("per", ["chunk", "passage", "document"])
def test_an_empty_store_finds_nothing(store: LandmarkStore, per: str) -> None:
    assert store.search("anything", per=per) == []
    store.add([Document("d", "text")])
    store.delete(["d"])
    assert store.search("anything", per=per) == []


@pytest.mark.parametrize("space", ["cosine", "ip", "l2"])
def test_case_27_scores_are_cosines_in_every_space(connect: object, collection: str, space: str) -> None:
    encoder = VectorEncoder(dimension=3)
    with LandmarkStore(connect(), collection, encoder, space=space) as store:
        vectors = {"same": "2 0 0", "opposite": "-3 0 0", "orthogonal": "0 5 0", "half": "1 1.7320508 0"}
        store.add([Document(name, vector) for name, vector in vectors.items()])
        for query in ("1 0 0", [7, 0, 0], np.array([0.5, 0, 0])):
            hits = store.search(query, k=4)
            assert [hit.doc_id for hit in hits] == ["same", "half", "orthogonal", "opposite"]
            assert np.allclose([hit.score for hit in hits], [1, 0.5, 0, -1], atol=1e-5)
            assert all(type(hit.score) is float and -1 <= hit.score <= 1 for hit in hits)
        assert [hit.doc_id for hit in store.search("1 0 0", min_score=0.4)] == ["same", "half"]
        assert [hit.doc_id for hit in store.search("1 0 0", min_score=0.4, per="document")] == ["same", "half"]


def test_case_27_ties_are_ordered_by_document_and_chunk(exact_store: LandmarkStore) -> None:
    names = ["d", "b", "a", "c", "e", "f", "g"]
    exact_store.add([Document(name, "0 1 0\n1 0 0\n1 0 0") for name in names])
    expected = [(name, start) for name in sorted(names) for start in (6, 12)]
    for k in (1, 3, 5, 14):
        assert [(hit.doc_id, hit.start) for hit in exact_store.search("1 0 0", k=k)] == expected[:k]
    assert [hit.doc_id for hit in exact_store.search("1 0 0", k=3, per="document")] == ["a", "b", "c"]


def test_document_scores(exact_store: LandmarkStore, collection: str) -> None:
    texts = {"one good": "1 0 0\n0 1 0\n0 0 1", "all fair": "0.8 0.6 0\n0.8 0 0.6", "long state": "3 0 0\n0 1 0"}
    exact_store.add([Document(name, text) for name, text in texts.items()])

    def scores(kind: str) -> dict[str, float]:
        hits = exact_store.search("1 0 0", per="document", document_score=kind)
        assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
        return {hit.doc_id: hit.score for hit in hits}

    assert scores("max") == pytest.approx({"one good": 1, "all fair": 0.8, "long state": 1}, abs=1e-5)
    assert scores("mean") == pytest.approx({"one good": 1 / 3, "all fair": 0.8, "long state": 0.5}, abs=1e-5)
    vectors = {"one good": 3**-0.5, "all fair": 0.8 / np.sqrt(0.64 + 0.18), "long state": 3 / np.sqrt(10)}
    assert scores("document_vector") == pytest.approx(vectors, abs=1e-5)
    hits = exact_store.search("1 0 0", per="document", document_score="mean", min_score=0.4)
    assert [hit.doc_id for hit in hits] == ["all fair", "long state"]


def test_the_document_vector_is_the_encoders(store: LandmarkStore, encoder: FakeEncoder) -> None:
    documents = [Document(f"d{n}", sample_text(n, 40)) for n in range(5)]
    store.add(documents)
    query = encoder.encode_queries(["w5 w6"])[0]
    expected = {each.id: float(encoder.encode_document(each.text).vector @ query) for each in documents}
    hits = store.search("w5 w6", per="document", document_score="document_vector")
    assert {hit.doc_id: hit.score for hit in hits} == pytest.approx(expected, abs=1e-5)


def test_matches_tell_where_the_answer_is(store: LandmarkStore) -> None:
    text = sample_text(1, 80, "zebra")
    store.add([Document("d", text), Document("e", sample_text(2, 80))])
    (chunk,) = store.search("zebra", k=1)
    (document,) = store.search("zebra", k=1, per="document")
    assert [(match.start, match.end, match.score) for match in chunk.matches] == [
        (chunk.start, chunk.end, chunk.score)
    ]
    assert document.matches == chunk.matches
    (passage,) = store.search("zebra", k=1, per="passage", max_chars=10_000)
    assert passage.matches[0] == chunk.matches[0]
    assert len(passage.matches) == 10
    assert all(first.score >= second.score for first, second in itertools.pairwise(passage.matches))


@pytest.mark.parametrize("max_chars", [1, 60, 200, 700, 10_000])
def test_passages_are_exact_and_do_not_overlap(store: LandmarkStore, max_chars: int) -> None:
    documents = {f"d{n}": sample_text(n, 150, f"topic{n % 3}") for n in range(6)}
    store.add([Document(key, text) for key, text in documents.items()])
    hits = store.search("topic1 w7", k=8, per="passage", max_chars=max_chars)
    chunk = store.search("topic1 w7", k=1)[0]
    assert hits[0].matches[0] == chunk.matches[0]
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert len(hits) == (8 if max_chars < 10_000 else 6)
    for hit in hits:
        assert documents[hit.doc_id][hit.start : hit.end] == hit.text
        assert hit.score == hit.matches[0].score
        assert all(hit.start <= match.start < match.end <= hit.end for match in hit.matches)
        if max_chars >= 200:
            assert len(hit.text) <= max_chars
    if max_chars == 10_000:
        assert {hit.text for hit in hits} <= {text.rstrip(" .,\n…") for text in documents.values()}
    spans = sorted((hit.doc_id, hit.start, hit.end) for hit in hits)
    for (doc, _, end), (next_doc, start, _) in itertools.pairwise(spans):
        assert doc != next_doc or end <= start


def test_passages_fill_the_budget_on_both_sides(exact_store: LandmarkStore) -> None:
    lines = [f"0 0 {1 + n} filler {n:03}" for n in range(100)]
    lines[50] = "1 0 0 answer"
    text = "\n".join(lines)
    exact_store.add([Document("d", text)])
    (hit,) = exact_store.search("1 0 0", k=1, per="passage", max_chars=400)
    assert 360 < len(hit.text) <= 400
    assert text[hit.start : hit.end] == hit.text
    before, after = hit.matches[0].start - hit.start, hit.end - hit.matches[0].end
    assert abs(before - after) < 40


def test_neighbouring_hits_are_one_passage(exact_store: LandmarkStore) -> None:
    lines = ["0 1 0"] * 40
    lines[10] = lines[12] = "1 0 0"
    lines[30] = "0.9 0.1 0"
    exact_store.add([Document("d", "\n".join(lines))])
    first, second = exact_store.search("1 0 0", k=2, per="passage", max_chars=60)
    assert [(match.start, match.end) for match in first.matches[:2]] == [(60, 65), (72, 77)]
    assert second.matches[0].start == 180


def test_a_chunk_longer_than_the_budget_is_a_passage(exact_store: LandmarkStore) -> None:
    line = "1 0 0 " + "long " * 100
    exact_store.add([Document("d", f"0 1 0\n{line}\n0 1 0")])
    (hit,) = exact_store.search("1 0 0", k=1, per="passage", max_chars=50)
    assert hit.text == line


def test_where_document_filters_on_the_text_of_a_chunk(store: LandmarkStore) -> None:
    store.add([Document("a", "red apples and green pears"), Document("b", "green pears only, no other fruit")])
    assert {hit.doc_id for hit in store.search("pears", where_document={"$contains": "apples"})} == {"a"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"query": "  "}, "blank"),
        ({"query": "x", "k": 0}, "k must be"),
        ({"query": "x", "k": -1}, "k must be"),
        ({"query": "x", "k": True}, "k must be"),
        ({"query": "x", "k": 2.0}, "k must be"),
        ({"query": "x", "per": "sentence"}, "per must be one of chunk, passage, document"),
        ({"query": "x", "document_score": "sum"}, "document_score must be one of"),
        ({"query": "x", "max_chars": 0}, "max_chars"),
        ({"query": [1.0, 2.0]}, "shape"),
        ({"query": [0.0] * 32}, "not zero"),
        ({"query": [float("nan")] * 32}, "finite"),
        ({"query": {"text": "x"}}, "string or a vector"),
    ],
)
def test_impossible_searches_are_refused(local_store: LandmarkStore, arguments: dict, message: str) -> None:
    with pytest.raises(QueryError, match=message):
        local_store.search(**arguments)


def test_results_do_not_depend_on_how_rows_were_written(tmp_path: object, collection: str) -> None:
    documents = [Document(f"d{n}", sample_text(n, 60)) for n in range(20)]

    def hits(store: LandmarkStore) -> list[Hit]:
        return [hit for per in ("chunk", "passage", "document") for hit in store.search("w1 w2 w3", k=6, per=per)]

    with LandmarkStore(tmp_path / "one", collection, FakeEncoder()) as store:
        store.add(documents)
        at_once = hits(store)
    with LandmarkStore(tmp_path / "two", collection, FakeEncoder()) as store:
        store.add(reversed([Document(each.id, each.text + " more") for each in documents]))
        for each in documents:
            store.add([each])
        assert hits(store) == at_once


def test_equal_vectors_do_not_hide_the_others(connect: object, collection: str) -> None:
    """More equal vectors than a node of Chroma's graph has links: a plain query never leaves them."""
    with LandmarkStore(connect(), collection, VectorEncoder(dimension=3)) as store:
        boilerplate = "\n".join(["0 1 0 page left blank"] * 60)
        store.add([Document(f"d{n}", f"{boilerplate}\n{near(0.5 + n / 100)} answer {n}") for n in range(12)])
        best = [f"d{n}" for n in range(11, -1, -1)]
        assert [hit.doc_id for hit in store.search("1 0 0", k=5)] == best[:5]
        assert [hit.doc_id for hit in store.search("1 0 0", k=12, per="document")] == best
        assert [hit.doc_id for hit in store.search("1 0 0", k=3, per="passage", max_chars=50)] == best[:3]
        assert [hit.doc_id for hit in store.search("1 0 0", k=2, where={"lmk:doc": {"$in": ["d3", "d5"]}})] == [
            "d5",
            "d3",
        ]


def test_a_search_in_a_large_collection_is_as_good_as_chromas_index(local_store: LandmarkStore) -> None:
    documents = [Document(f"d{n}", sample_text(n, 400, f"topic{n}")) for n in range(30)]
    local_store.add(documents)
    assert local_store.count() > 1_000
    stored = local_store.collection.get(include=["embeddings"])
    found = wanted = 0
    for number in range(0, 30, 3):
        query = local_store.encoder.encode_queries([f"topic{number} w1 w2"])[0]
        scores = dict(zip(stored["ids"], np.stack(stored["embeddings"]) @ query, strict=True))
        best = sorted(scores, key=lambda row: -scores[row])
        hits = local_store.search(query, k=10)
        assert all(
            np.isclose(hit.score, scores[f"{hit.doc_id}#{hit.matches[0].chunk}"], atol=1e-5) for hit in hits
        )
        expected = list(dict.fromkeys(row.split("#")[0] for row in best))
        assert len(local_store.search(query, k=100, per="document")) == 30
        wanted += 18
        found += len({f"{hit.doc_id}#{hit.matches[0].chunk}" for hit in hits} & set(best[:10]))
        found += len({hit.doc_id for hit in local_store.search(query, k=8, per="document")} & set(expected[:8]))
    assert found / wanted > 0.95  # the graph is built by several threads, and not always the same
