"""How far a passage reaches: whole sentences around what was found, within a budget of characters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lmk_embed.boundaries import sentence_ends

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The part of a source that is known.

    Attributes
    ----------
    text : str
    chunks : sequence of (int, int)
        Spans of the chunks in it, in order.
    opens, closes : bool
        Whether the text begins where the source begins, and ends where it ends.
    """

    text: str
    chunks: Sequence[Span]
    opens: bool
    closes: bool


def widened(known: Surroundings, core: Span, bounds: Span, max_chars: int, language: str = "en") -> Span:
    """Add whole sentences on both sides.

    A start and then an end in the middle of a sentence move first, then the side that has grown less. A sentence
    of more than half the budget (a table, a list without full stops) is divided where its chunks are.

    Parameters
    ----------
    known : Surroundings
    core : (int, int)
        What was found; it stays inside, also if it is longer than the budget.
    bounds : (int, int)
        Not to be passed: other passages lie there.
    max_chars : int
    language : str
        Of the sentences, as ``sentencex`` names it.

    Returns
    -------
    (int, int)

    Examples
    --------
    >>> text = "It rains. The dog barks at the cat. It runs away."
    >>> known = Surroundings(text, [(0, 18), (18, len(text))], opens=True, closes=True)
    >>> start, end = widened(known, (18, 35), (0, len(text)), max_chars=30)
    >>> text[start:end]
    'The dog barks at the cat.'
    """
    if core[1] - core[0] >= max_chars:
        return core
    starts, ends = _stops(known, core, max_chars, language)
    (start, end), (low, high) = core, bounds
    before = sorted(stop for stop in starts if low <= stop < start)
    after = sorted((stop for stop in ends if end < stop <= high), reverse=True)
    while before or after:
        left = start not in starts or (end in ends and core[0] - start < end - core[1])
        if before and (left or not after):
            stop = before.pop()
            if end - stop <= max_chars:
                start = stop
            else:
                before.clear()
        else:
            stop = after.pop()
            if stop - start <= max_chars:
                end = stop
            else:
                after.clear()
    return start, end


def _stops(known: Surroundings, core: Span, max_chars: int, language: str) -> tuple[set[int], set[int]]:
    """Return where a passage may begin and where it may end."""
    # Farther away nothing fits; half a budget more tells how long the sentence at that point is.
    reach = max_chars + max_chars // 2
    first, last = max(0, core[1] - reach), min(len(known.text), core[0] + reach)
    starts: set[int] = set()
    ends: set[int] = set()
    part, begin = known.text[first:last], 0
    for stop in sentence_ends(part, language):
        sentence = part[begin:stop]
        start = first + begin + len(sentence) - len(sentence.lstrip())
        end = first + begin + len(sentence.rstrip())
        blank = start > end  # a line between paragraphs: neither a sentence nor a place to cut
        # Where the known part is cut off, nobody knows whether a sentence begins or ends.
        if not blank and (begin > 0 or (first == 0 and known.opens)):
            starts.add(start)
        if not blank and (stop < len(part) or (last == len(known.text) and known.closes)):
            ends.add(end)
        if end - start > max_chars // 2:
            inside = [chunk for chunk in known.chunks if start <= chunk[0] and chunk[1] <= end]
            starts.update(chunk[0] for chunk in inside)
            ends.update(chunk[1] for chunk in inside)
        begin = stop
    return starts, ends
