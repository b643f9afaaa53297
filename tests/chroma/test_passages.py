"""Passages: whole sentences around what was found, within the budget, exact to the character."""

import itertools

import pytest
from chroma_fakes import FakeEncoder, VectorEncoder
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chroma_lmk import Hit, LandmarkStore
from chroma_lmk.context import Surroundings, widened
from lmk_embed.boundaries import sentence_ends
from lmk_embed.results import Document

NUMBERS = ["one", "two", "three", "four", "five", "six", "seven", "eight"]
SENTENCES = [f"Number {number} is a short sentence of its own." for number in NUMBERS]
PROSE = " ".join(SENTENCES)  # nine words each, and chunks of eight: only the first chunk begins a sentence


def passage(store: LandmarkStore, query: str, max_chars: int) -> Hit:
    (hit,) = store.search(query, k=1, per="passage", max_chars=max_chars)
    (source,) = store.get([hit.doc_id])
    assert source.text[hit.start : hit.end] == hit.text
    return hit


@pytest.mark.parametrize(
    ("max_chars", "expected"),
    [
        (10, "of its own. Number four is a short"),
        (len(SENTENCES[2] + " Number four is a short"), SENTENCES[2] + " Number four is a short"),
        (len(" ".join(SENTENCES[2:4])) - 1, SENTENCES[2] + " Number four is a short"),
        (len(" ".join(SENTENCES[2:4])), " ".join(SENTENCES[2:4])),
        (150, " ".join(SENTENCES[2:5])),
        (200, " ".join(SENTENCES[1:5])),
    ],
)
def test_a_chunk_in_mid_sentence_grows_to_whole_sentences(
    store: LandmarkStore, max_chars: int, expected: str
) -> None:
    store.add([Document("d", PROSE)])
    assert passage(store, "four", max_chars).text == expected


def test_a_passage_takes_the_near_sentences_of_a_chunk_that_does_not_fit(local_store: LandmarkStore) -> None:
    local_store.encoder.words = 36  # four sentences a chunk
    local_store.add([Document("d", f"{PROSE} {PROSE.replace('Number', 'Figure')}")])
    hit = passage(local_store, "figure one", 275)
    assert hit.text.startswith(f"{SENTENCES[7]} Figure one")
    assert hit.text.endswith("Figure five is a short sentence of its own.")
    assert not hit.whole


def test_what_is_longer_than_half_the_budget_is_divided_at_chunks(local_store: LandmarkStore) -> None:
    words = " ".join(f"cell{number}" for number in range(80))
    local_store.add([Document("d", f"Before it. {words} x. After it.")])
    chunks = [chunk.text for chunk in local_store.encoder.encode_document(local_store.get(["d"])[0].text).chunks]
    assert passage(local_store, "cell40", 200).text in (" ".join(chunks[4:7]), " ".join(chunks[5:8]))


def test_the_ends_of_a_document_are_reached(store: LandmarkStore) -> None:
    text = PROSE.rstrip(".")
    store.add([Document("d", text)])
    hit = passage(store, "four", len(text))
    assert (hit.text, hit.whole) == (text, True)
    assert not passage(store, "four", len(text) - 1).whole


def test_code_has_no_language_of_sentences(connect: object, collection: str) -> None:
    class Code(FakeEncoder):
        def to_dict(self) -> dict:
            return {**super().to_dict(), "config": {"boundaries": "code", "language": "python"}}

    with LandmarkStore(connect(), collection, Code()) as store:
        store.add([Document("d", PROSE)])
        assert store.info.language == "en"
        assert passage(store, "four", 100).text == " ".join(SENTENCES[2:4])


WORDS = st.lists(st.sampled_from(["red", "fox", "Dr.", "e.g.", "3.5", "ran", "x" * 40, "日本語"]), max_size=25)
STOPS = st.sampled_from([". ", "? ", ".\n", "\n\n", "\n- ", " … ", "。", ".  ", " "])
TEXTS = st.lists(st.tuples(WORDS, STOPS), min_size=1, max_size=12).map(
    lambda parts: "".join(" ".join(words) + stop for words, stop in parts)
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(TEXTS, min_size=1, max_size=3), st.integers(1, 900), st.integers(1, 6))
def test_spans_are_exact_and_within_the_budget(
    shared_store: LandmarkStore, texts: list[str], max_chars: int, k: int
) -> None:
    shared_store.delete([info.id for info in shared_store.documents()])
    shared_store.add([Document(f"d{number}", f"zebra {text}") for number, text in enumerate(texts)])
    documents = {each.id: each.text for each in shared_store.get([f"d{n}" for n in range(len(texts))])}
    hits = shared_store.search("fox zebra", k, per="passage", max_chars=max_chars)
    assert hits
    for hit in hits:
        assert documents[hit.doc_id][hit.start : hit.end] == hit.text
        longest = max(match.end - match.start for match in hit.matches)
        assert hit.end - hit.start <= max(max_chars, longest)
        assert all(hit.start <= match.start < match.end <= hit.end for match in hit.matches)
        assert len({match.chunk for match in hit.matches}) == len(hit.matches)
        chunks = shared_store.encoder.encode_document(documents[hit.doc_id]).chunks
        assert hit.whole == (hit.start == chunks[0].start and hit.end == chunks[-1].end)
    spans = sorted((hit.doc_id, hit.start, hit.end) for hit in hits)
    for (doc, _, end), (next_doc, start, _) in itertools.pairwise(spans):
        assert doc != next_doc or end <= start


@settings(max_examples=300, deadline=None)
@given(TEXTS, st.integers(1, 600), st.integers(1, 60), st.data())
def test_an_edge_is_that_of_a_sentence_or_of_a_chunk(
    text: str, max_chars: int, size: int, data: st.DataObject
) -> None:
    chunks = [(first, min(first + size, len(text))) for first in range(0, len(text), size)]
    core = data.draw(st.sampled_from(chunks))
    low, high = data.draw(st.integers(0, core[0])), data.draw(st.integers(core[1], len(text)))
    start, end = widened(Surroundings(text, chunks, True, True), core, (low, high), max_chars)
    assert min(low, core[0]) <= start <= core[0] < core[1] <= end <= max(high, core[1])
    assert end - start <= max(max_chars, core[1] - core[0])
    cuts = [0, *sentence_ends(text, "en")]
    for first, last in itertools.pairwise(cuts):
        sentence = text[first:last]
        begins = first + len(sentence) - len(sentence.lstrip())
        if first <= start < last and start not in (core[0], begins) and len(text) <= max_chars:
            assert len(sentence.strip()) > max_chars // 2
            assert start in {chunk[0] for chunk in chunks}


def test_a_blank_line_is_no_place_to_cut() -> None:
    text = "red red red red " + "x" * 40 + "\n\n\n- "
    chunks = [(first, min(first + 2, len(text))) for first in range(0, len(text), 2)]
    assert widened(Surroundings(text, chunks, True, True), (60, 61), (55, 61), 61) == (59, 61)


def test_a_joined_hit_keeps_what_it_found(connect: object, collection: str) -> None:
    """Two hits with a chunk between that neither is: all three are in, and sentences around them."""
    lines = [f"0 1 0 line {number} here." for number in range(9)]
    lines[3], lines[5] = "1 0 0 first answer.", "0.9 0.1 0 second answer."
    with LandmarkStore(connect(), collection, VectorEncoder(dimension=3)) as store:
        store.add([Document("d", "\n".join(lines))])
        hit = passage(store, "1 0 0", 110)
        assert "\n".join(lines[3:6]) in hit.text
        assert [match.chunk for match in hit.matches[:2]] == [3, 5]
