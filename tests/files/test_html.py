"""The visible text of HTML: what a reader sees, and where each character stands in the file."""

from __future__ import annotations

import re
import time
from html import escape, unescape

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lmk_embed.files.html import visible_text

unhurried = settings(deadline=None)  # slow machines are no failures
INLINE_TAGS = ["<b>", "</b>", "<a href='x'>", '<SPAN title="a>b">', "</span >", "<!-- c -->", "<img src=x>", "</>"]
BLOCK_TAGS = ["<p>", "</P>", "<div\nid=1>", "</div>", "<li>", "<br/>", "<td>", "<tr>", "<h1>", "<!doctype html>"]
HIDDEN = ["<script>if (a < b) '<p>x';</script>", "<STYLE>p { }</STYLE>", "<template>no <i>x</i></template>"]
WORDS = st.text("abzäß東👩&<>\"'0;#", min_size=1, max_size=8)


@st.composite
def pages(draw: st.DrawFn) -> tuple[str, list[str]]:
    """A page, and the pieces of text that are seen in it, in order and without white space."""
    page, words = "", []
    for _ in range(draw(st.integers(0, 12))):
        kind = draw(st.sampled_from(["word", "decimal", "hex", "inline", "block", "hidden", "space"]))
        if kind in ("word", "decimal", "hex"):
            word = draw(WORDS)
            words.append(word)
            page += _spell(word, kind)
        else:
            choices = {"inline": INLINE_TAGS, "block": BLOCK_TAGS, "hidden": HIDDEN, "space": [" ", "\n\t ", "\n"]}
            page += draw(st.sampled_from(choices[kind]))
    return page, words


def _spell(word: str, kind: str) -> str:
    if kind == "word":
        return escape(word)
    return "".join(f"&#{ord(c)};" if kind == "decimal" else f"&#X{ord(c):x};" for c in word)


@unhurried
@given(pages())
def test_all_visible_text_is_there_and_nothing_else(page_and_words: tuple[str, list[str]]) -> None:
    page, words = page_and_words
    text, _ = visible_text(page)
    assert "".join(text.split()) == "".join(words)


@unhurried
@given(st.one_of(pages().map(lambda page: page[0]), st.text("<>/&;#!-[]?=\"' \nax1pre\xad", max_size=40)))
@example("a &# b <p>c</p> &#z; <p>d</p>")
@example("<![foo[ x ]]>y")
@example("&NotEqualTilde;&semi;&notit;&ampx&#1;&#0;")
@example("<pre>\n a &amp;\n\n b</pre>\n<xmp>&amp;<b></xmp>")
@example("<title><script> &lt;</title><![CDATA[ a > &amp; ]]>b<")
def test_every_character_is_found_in_the_file(page: str) -> None:
    text, source_map = visible_text(page)
    previous = (0, 0)
    for position, character in enumerate(text):
        start, end = source_map.span(position, position + 1)
        assert 0 <= start < end <= len(page)
        assert (
            start >= previous[1] or (start, end) == previous
        )  # in order; two characters of one reference share it
        previous = (start, end)
        if not character.isspace():
            written = page[start:end]
            assert character in (written, *unescape(written))


@unhurried
@given(pages(), st.data())
def test_span_reaches_from_first_to_last_character(
    page_and_words: tuple[str, list[str]], data: st.DataObject
) -> None:
    text, source_map = visible_text(page_and_words[0])
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    first, last = source_map.span(start, end)
    if start == end:
        assert first == last
    else:
        assert first == source_map.span(start, start + 1)[0]
        assert last == source_map.span(end - 1, end)[1]


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("", ""),
        (" \n<p> </p>", ""),
        ("<p>a\n\n   b</p>\n\n<p>  c", "a b\n\nc"),
        ("a<b> </b>b<i>c</i>", "a bc"),
        ("<ul><li>a<li>b<ul><li>c</ul></ul>d", "a\nb\nc\nd"),
        ("A<BR>B<br/><br><br>C", "A\nB\n\nC"),
        ("<table><tr><td>a<td> b<tr><th>c</th><th></th><th>d</table>e", "a\tb\nc\td\n\ne"),
        ("x<pre>\n  a\n\n    b\n</pre>c", "x\n\n  a\n\n    b\n\nc"),
        ("<textarea>\n a <b>\n</textarea>x", " a <b>\nx"),
        ("<head><title>T &amp; <script></title><style>p{}</style></head><body>b", "T & <script>\n\nb"),
        ("<script>a</script>b<noscript>c</noscript><template>d<template></template>e</template>f", "bf"),
        ("<script src='x'/>seen", "seen"),
        ("850&nbsp;&euro;", "850\xa0€"),
        ("Donau&shy;dampf\xadschiff \ufeffx", "Donaudampfschiff x"),
        ("&copy2024 &notit; &foo; &;& AT&T &#1;&#0;&#x80;&#32;&#10;x", "©2024 ¬it; &foo; &;& AT&T �€ x"),
        ("a &# b <p>c</p> &#z; <p>d</p>", "a &# b\n\nc\n\n&#z;\n\nd"),
        ("a < b <3 c <", "a < b <3 c <"),
        ("a<!-- b -->c<!doctype d>e<?f?>g<!h>i</ j>k</>l", "acegikl"),
        ("<!--[if IE]>a<![endif]--><![if !IE]>b<![endif]>c", "bc"),
        ("<![foo[ a ]]>b<![CDATA[ c > &amp; ]]>d", "b c > &amp; d"),
    ],
)
def test_text_is_what_a_browser_shows(page: str, text: str) -> None:
    assert visible_text(page)[0] == text


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("a<p", "a"),
        ("a<p class='x", "a"),
        ("a<p title='x>b <i>c</i>", "ab c"),
        ("a<!-- b <p>c", "a"),
        ("a<script>b <p>c", "a"),
        ("a<![CDATA[ b", "a"),
        ("a</p", "a"),
        ("<title>a &lt; b", "a < b"),
        ("a &amp", "a &"),
        ("a &", "a &"),
    ],
)
def test_unfinished_markup_at_the_end(page: str, text: str) -> None:
    assert visible_text(page)[0] == text


def test_a_reference_maps_to_all_its_characters() -> None:
    page = "<p>1 &lt; 2 &NotEqualTilde; &notit;"
    text, source_map = visible_text(page)

    def written(piece: str) -> str:
        start, end = source_map.span(text.index(piece), text.index(piece) + len(piece))
        return page[start:end]

    assert text == "1 < 2 \u2242\u0338 \u00acit;"
    assert written("<") == "&lt;"
    assert written("\u0338") == "&NotEqualTilde;"
    assert written("\u00ac") == "&not"
    assert written("it;") == "it;"
    assert written("1 < 2") == "1 &lt; 2"


def test_map_of_ordinary_prose_is_small() -> None:
    _, source_map = visible_text("<p>" + "one two three\nfour five\n" * 1000)
    assert len(source_map.file_starts) == 1


@pytest.mark.parametrize(
    "piece",
    [
        "<a ",
        "<",
        "<!--a",
        '<div a="',
        "<?",
        "</a",
        "<![CDATA[",
        "<![x[",
        "&a",
        "&#",
        "<script>",
        "<title>",
        "<a b=c ",
    ],
)
def test_time_grows_with_the_length_not_its_square(piece: str) -> None:
    for end in ("", ">"):
        started = time.perf_counter()
        visible_text(piece * (200_000 // len(piece)) + end)
        assert time.perf_counter() - started < 5  # the square would take minutes


def test_large_page() -> None:
    line = '<p class="x">Der Mietvertrag &amp; die <b>Kaution</b> von 1700&nbsp;&euro;\nsind f&auml;llig.</p>\n'
    count = 2_000_000 // len(line)
    text, source_map = visible_text(line * count)
    assert text == "\n\n".join(["Der Mietvertrag & die Kaution von 1700\xa0€ sind fällig."] * count)
    start = text.rindex("Kaution")
    first, last = source_map.span(start, start + len("Kaution"))
    assert (line * count)[first:last] == "Kaution"
    assert first > 1_900_000
    assert not re.search("[<>&](?! die)", text)
