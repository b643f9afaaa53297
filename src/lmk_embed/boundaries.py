"""Where chunks end: sentences, fixed lengths, Markdown or code structure, or the caller's own spans."""

from __future__ import annotations

import importlib
import operator
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from lmk_embed.errors import MissingExtraError, SpanError
from lmk_embed.tokens import Ints, Tokens

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from lmk_embed.config import LandmarkConfig

#: Characters handed to the sentence splitter at once, so that its records never outgrow the text.
_BLOCK = 200_000
#: Tokens that a base letter and its accents may take together; a longer run of accents is cut like any text.
_LETTER = 16
_PARAGRAPH_END = re.compile(r"\n[^\S\n]*\n\s*")
#: Where a sentence that is too long is best divided, and how far back in the range that is worth looking.
_BREAKS = (
    (re.compile(r"\n"), 0.75),
    (re.compile(r"[.!?…]['\")\]]*\s|[。！？]"), 0.75),  # noqa: RUF001
    (re.compile(r"[;:,]\s|[、；：，]"), 0.5),  # noqa: RUF001
    (re.compile(r"\s"), 0.5),
)


@dataclass(frozen=True, slots=True)
class Piece:
    """A chunk before it is encoded: a token range and its characters.

    Attributes
    ----------
    first, last : int
        Half-open token range.
    start, end : int
        Character span without surrounding white space.
    """

    first: int
    last: int
    start: int
    end: int

    def __len__(self) -> int:
        """Return the number of tokens."""
        return self.last - self.first


def cut(text: str, tokens: Tokens, config: LandmarkConfig, limit: int, tokenizer: Tokenizer) -> list[Piece]:
    """Divide a text into chunks of at most ``limit`` tokens.

    Parameters
    ----------
    text : str
    tokens : Tokens
        All content tokens of the text.
    config : LandmarkConfig
        ``boundaries`` and ``language`` are read.
    limit : int
        Most tokens of a chunk; exceeded only by tokens that share one character.
    tokenizer : tokenizers.Tokenizer
        For splitters that count tokens themselves.

    Returns
    -------
    list of Piece
        In order; every non-space character of the text lies in exactly one, stretches of white space in none.
    """
    if config.boundaries == "fixed":
        cuts = _pack(text, tokens, np.empty(0, dtype=np.int32), limit, at_words=False)
    elif config.boundaries == "sentence":
        stops = _token_stops(tokens, sentence_ends(text, config.language or "en"))
        cuts = _pack(text, tokens, stops, limit, at_words=True)
    else:
        starts = structure_starts(text, config.boundaries, config.language, limit, tokenizer)
        cuts = _within(text, tokens, _token_stops(tokens, starts), limit)
    return _pieces(text, tokens, cuts)


def cut_at_spans(
    text: str, tokens: Tokens, spans: Sequence[tuple[int, int]], limit: int
) -> tuple[list[Piece], list[int]]:
    """Make the caller's spans the chunks; a span longer than ``limit`` tokens is cut into several pieces.

    Parameters
    ----------
    text : str
    tokens : Tokens
    spans : sequence of (int, int)
        Character ranges, rising, not overlapping, each with some non-space character.
    limit : int

    Returns
    -------
    pieces : list of Piece
    owners : list of int
        For each piece, the index of its span.

    Raises
    ------
    SpanError
        Naming the first span that is out of range, out of order, overlapping or blank.
    """
    pieces: list[Piece] = []
    owners: list[int] = []
    for index, (start, end) in enumerate(check_spans(text, spans)):
        first, last = (int(i) for i in np.searchsorted(tokens.starts, (start, end)))
        if first and tokens.ends[first - 1] > start and (not pieces or pieces[-1].last < first):
            first -= 1  # a token that begins before the span and reaches into it
        inner = tokens.slice(first, last)
        cuts = _pack(text, inner, np.empty(0, dtype=np.int32), limit, at_words=True)
        found = _pieces(text, inner, cuts, start, end)
        if not found:
            raise SpanError(f"span {index}, characters {start} to {end}, holds no token of this tokenizer")
        pieces += [Piece(p.first + first, p.last + first, p.start, p.end) for p in found]
        owners += [index] * len(found)
    return pieces, owners


def check_spans(text: str, spans: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield the spans, each checked against the text and its predecessor.

    Raises
    ------
    SpanError
        Naming the span and what is wrong with it.

    Examples
    --------
    >>> list(check_spans("one two", [(0, 3), (2, 7)]))
    Traceback (most recent call last):
    lmk_embed.errors.SpanError: span 1, characters 2 to 7: begins before the end (3) of the span before it
    """
    previous = 0
    for index, span in enumerate(spans):
        try:
            start, end = map(operator.index, span)
        except (TypeError, ValueError) as error:
            raise SpanError(f"span {index} must be a pair of whole numbers, got {span!r}") from error
        problem = None
        if not 0 <= start < end <= len(text):
            problem = f"is empty or outside the text of {len(text)} characters"
        elif start < previous:
            problem = f"begins before the end ({previous}) of the span before it"
        elif text[start:end].isspace():
            problem = "holds nothing but white space"
        if problem:
            raise SpanError(f"span {index}, characters {start} to {end}: {problem}")
        previous = end
        yield start, end


def sentence_ends(text: str, language: str) -> Iterator[int]:
    """Yield the character position after each sentence, by the rules of ``sentencex``.

    Examples
    --------
    >>> list(sentence_ends("Dr. Wu left. She came back.", "en"))
    [13, 27]
    """
    from sentencex import get_sentence_boundaries

    start = 0
    while start < len(text):
        stop = _block_end(text, start)
        for boundary in get_sentence_boundaries(language, text[start:stop]):
            yield start + boundary["end_index"]
        start = stop


def _block_end(text: str, start: int) -> int:
    """Return where a block may end without cutting a sentence: after a paragraph, else after a line."""
    stop = start + _BLOCK
    if stop >= len(text):
        return len(text)
    paragraphs = [match.end() for match in _PARAGRAPH_END.finditer(text, start + _BLOCK // 2, stop)]
    if paragraphs:
        return paragraphs[-1]
    line = text.rfind("\n", start, stop)
    return line + 1 if line > start else stop


def structure_starts(text: str, kind: str, language: str | None, limit: int, tokenizer: Tokenizer) -> list[int]:
    """Return the character positions where Markdown or code is best cut into at most ``limit`` tokens.

    Parameters
    ----------
    text : str
    kind : {"markdown", "code"}
    language : str or None
        Tree-sitter grammar for ``code``; the package ``tree-sitter-<language>`` must be installed.
    limit : int
    tokenizer : tokenizers.Tokenizer

    Raises
    ------
    MissingExtraError
        If the grammar's package is not installed.
    """
    from semantic_text_splitter import CodeSplitter, MarkdownSplitter, TextSplitter

    if kind == "markdown":
        splitter: Any = MarkdownSplitter.from_huggingface_tokenizer(tokenizer, limit)
    elif language is None:
        splitter = TextSplitter.from_huggingface_tokenizer(tokenizer, limit)
    else:
        splitter = CodeSplitter.from_huggingface_tokenizer(_grammar(language), tokenizer, limit)
    return [start for start, _ in splitter.chunk_indices(text)]


def _grammar(language: str) -> Any:
    module = f"tree_sitter_{language.replace('-', '_')}"
    try:
        return importlib.import_module(module).language()
    except ImportError as error:
        raise MissingExtraError(
            f'boundaries="code" with language={language!r} needs the grammar package. '
            f"Install it with: pip install tree-sitter-{language.replace('_', '-')}"
        ) from error


def _token_stops(tokens: Tokens, positions: Iterable[int]) -> Ints:
    """Turn character positions into token indices at which a chunk may end, rising and without repeats."""
    at = np.fromiter(positions, dtype=np.int32)
    stops = np.unique(np.searchsorted(tokens.starts, at)).astype(np.int32)
    return stops[(stops > 0) & (stops < len(tokens))]


def _pack(text: str, tokens: Tokens, stops: Ints, limit: int, *, at_words: bool) -> list[int]:
    """Cut greedily: at the last stop within the limit, else between lines or words, else between tokens."""
    n, cuts = len(tokens), [0]
    while n - cuts[-1] > limit:
        first = cuts[-1]
        stop = int(np.searchsorted(stops, first + limit, side="right")) - 1
        if stop >= 0 and stops[stop] > first:
            cuts.append(_sound(text, tokens, int(stops[stop]), first, n))
        else:
            wanted = _best_break(text, tokens, first, first + limit) if at_words else first + limit
            cuts.append(_sound(text, tokens, wanted, first, n))
    return [*cuts, n] if cuts[-1] < n else cuts


def _within(text: str, tokens: Tokens, stops: Ints, limit: int) -> list[int]:
    """Cut at every stop, and again wherever more than ``limit`` tokens lie between two of them."""
    cuts = [0]
    for stop in [*(stop for stop in stops.tolist() if _divides(text, tokens, stop)), len(tokens)]:
        first = cuts[-1]
        inner = _pack(text, tokens.slice(first, stop), np.empty(0, dtype=np.int32), limit, at_words=True)
        cuts += [first + at for at in inner[1:]]
    return cuts


def _best_break(text: str, tokens: Tokens, first: int, last: int) -> int:
    """Return the token to end before when no stop is in a range: after a line, else a clause, else a word."""
    hi = int(tokens.starts[last])
    for mark, reach in _BREAKS:
        lo = int(tokens.starts[last - int((last - first) * reach)])
        found = [match.end() for match in mark.finditer(text, lo, hi)]
        at = int(np.searchsorted(tokens.starts, found[-1])) if found else first
        if first < at <= last:
            return at
    return last


def _sound(text: str, tokens: Tokens, at: int, first: int, n: int) -> int:
    """Move a cut so that no character, and no base letter with its accent, is divided: back, else forward."""
    back = next((i for i in range(at, first, -1) if _divides(text, tokens, i)), None)
    if back is not None:
        return back
    letter_end = min(max(at, first + _LETTER), n)
    forward = next((i for i in range(at + 1, letter_end + 1) if i == n or _divides(text, tokens, i)), None)
    if forward is not None:
        return forward
    # More accents than a letter has: only the characters themselves stay whole.
    back = next((i for i in range(at, first, -1) if _separates(tokens, i)), None)
    return back or next((i for i in range(at + 1, n) if _separates(tokens, i)), n)


def _divides(text: str, tokens: Tokens, at: int) -> bool:
    """Whether the characters before token ``at`` and those from it on are two separate texts."""
    start = int(tokens.starts[at])
    return _separates(tokens, at) and not (start < len(text) and unicodedata.combining(text[start]))


def _separates(tokens: Tokens, at: int) -> bool:
    """Whether no character has tokens on both sides of the place before token ``at``."""
    return int(tokens.starts[at]) >= int(tokens.ends[at - 1])


def _pieces(text: str, tokens: Tokens, cuts: list[int], start: int = 0, end: int | None = None) -> list[Piece]:
    """Give each token range its characters; ranges of white space alone are left out.

    Characters that the tokenizer drops belong to the piece before them, or to the first piece.
    """
    kept = [
        (first, last)
        for first, last in pairwise(cuts)
        if (tokens.ends[first:last] > tokens.starts[first:last]).any()
    ]
    borders = [start, *(int(tokens.starts[first]) for first, _ in kept[1:]), len(text) if end is None else end]
    pieces = []
    for index, (first, last) in enumerate(kept):
        lo, hi = borders[index], borders[index + 1]
        inner = text[lo:hi]
        pieces.append(Piece(first, last, lo + len(inner) - len(inner.lstrip()), lo + len(inner.rstrip())))
    return pieces
