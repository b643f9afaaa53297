"""Pieces of the recursive splitter at their exact places, whatever the text repeats."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_text_splitters import RecursiveCharacterTextSplitter

from lmk_embed.evaluation import splitting
from lmk_embed.evaluation.splitting import recursive_spans


def words(text: str) -> int:
    return len(text.split())


def letters(text: str) -> int:
    return sum(not character.isspace() for character in text)


def pieces_of_langchain(text: str, size: int, overlap: int, count: Callable[[str], int] = words) -> list[str]:
    splitter = RecursiveCharacterTextSplitter(chunk_size=size, chunk_overlap=overlap, length_function=count)
    return splitter.split_text(text)


PROSE = "\n\n".join(
    " ".join(f"Clause {i}.{j} says that item {j} costs {i * j} pounds." for j in range(9)) for i in range(12)
)


@pytest.mark.parametrize("overlap", [0, 5])
def test_the_pieces_are_langchains(overlap: int) -> None:
    spans = recursive_spans(PROSE, 25, overlap, words)
    assert [PROSE[start:end] for start, end in spans] == pieces_of_langchain(PROSE, 25, overlap)
    assert all(a < b for a, b in pairwise(spans))
    gaps = [PROSE[a:b] for (_, a), (b, _) in pairwise(spans) if a < b]
    assert not "".join(gaps).strip(), "only white space is left out"


def test_repeated_text_keeps_its_places() -> None:
    text = "row row row your boat. " * 40
    spans = recursive_spans(text, 10, 0, words)
    assert spans[0][0] == 0 and spans[-1][1] == len(text.rstrip())
    assert all(end <= start for (_, end), (start, _) in pairwise(spans)), "no overlap was asked for"
    shared = recursive_spans(text, 10, 3, words)
    assert shared[-1][1] == len(text.rstrip()), "places do not drift"
    assert all(words(text[start:end]) <= 3 for (_, end), (start, _) in pairwise(shared) if start < end)


@given(
    st.lists(st.sampled_from(["a", "b", "ab", " ", "  ", "\n", "\n\n", "\t", "ö🌧"]), max_size=60).map("".join),
    st.integers(1, 6),
    st.integers(0, 5),
)
def test_any_text(text: str, size: int, overlap: int) -> None:
    overlap = min(overlap, size - 1)
    spans = recursive_spans(text, size, overlap, letters)
    assert [text[start:end] for start, end in spans] == [
        piece.strip() for piece in pieces_of_langchain(text, size, overlap, letters) if piece.strip()
    ]
    assert all(a[0] < b[0] for a, b in pairwise(spans))
    # Nothing but white space lies outside, whatever the overlap.
    covered = {at for start, end in spans for at in range(start, end)}
    assert all(text[at].isspace() for at in range(len(text)) if at not in covered)


def test_what_has_no_tokens_is_repeated_even_without_overlap() -> None:
    """The second piece begins with the tab that the first ends with, so it does not follow its end."""
    for text in ("aa\tb", "aa\ta", "one\n\n\n\none\n\n\n\none"):
        for size in (1, 2):
            spans = recursive_spans(text, size, 0, words)
            assert [text[start:end] for start, end in spans] == pieces_of_langchain(text, size, 0)
            assert all(end <= start for (_, end), (start, _) in pairwise(spans))


def test_texts_of_over_a_million_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = recursive_spans(PROSE, 25, 0, words)
    monkeypatch.setattr(splitting._Marked, "SIZE", 700)
    assert len(list(splitting._parts(PROSE))) > 5
    assert recursive_spans(PROSE, 25, 0, words) == whole, "parts end where paragraphs do"
    unbroken = "x" * 2000
    assert recursive_spans(unbroken, 50, 0, len)[-1] == (1950, 2000)


def test_blank_text_has_no_pieces() -> None:
    assert recursive_spans("", 10, 2, words) == recursive_spans(" \n ", 10, 2, words) == []
