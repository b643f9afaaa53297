"""Passages: neighbouring chunks that answer together, with as much context as a character budget allows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from chroma_lmk.hits import Hit, Match, holds_all, match
from chroma_lmk.nearest import Candidate
from chroma_lmk.reader import pages
from chroma_lmk.rows import StoredRow, row_id

Content = Callable[[Sequence[Candidate]], list[StoredRow]]
Fetch = Callable[[Sequence[str]], dict[str, StoredRow]]

# Chunks that are fetched on either side at a time, at most.
_MAX_REACH = 16
_MAX_ROUNDS = 8


@dataclass(slots=True)
class Passage:
    """A run of chunks of one document that grows while it is built.

    Attributes
    ----------
    best : StoredRow
        The chunk that answers best.
    matches : list of Match
        All chunks that were found, best first.
    first, last : int
        Indices of the outer chunks.
    rows : dict of int to StoredRow
        The chunks that are known, by index; more than the passage has, once its surroundings were fetched.
    """

    best: StoredRow
    matches: list[Match]
    first: int
    last: int
    rows: dict[int, StoredRow] = field(default_factory=dict)

    @classmethod
    def around(cls, row: StoredRow) -> Passage:
        """Start a passage with the chunk that was found."""
        return cls(row, [match(row, row.score)], row.chunk, row.chunk, {row.chunk: row})

    @property
    def start(self) -> int:
        """First character in the source."""
        return self.rows[self.first].start

    @property
    def end(self) -> int:
        """Character after the last one in the source."""
        return self.rows[self.last].end

    def same_text(self, row: StoredRow) -> bool:
        """Whether a row belongs to the same state of the same document."""
        return row.doc_id == self.best.doc_id and row.version == self.best.version

    def join(self, row: StoredRow, max_chars: int) -> bool:
        """Take a chunk of the same document in, if the passage stays within the budget."""
        if not self.same_text(row):
            return False
        if max(self.end, row.end) - min(self.start, row.start) > max_chars:
            return False
        self.matches.append(match(row, row.score))
        self.rows[row.chunk] = row
        self.first, self.last = min(self.first, row.chunk), max(self.last, row.chunk)
        return True

    def note(self, candidate: Candidate) -> None:
        """Note a chunk that was found, if it lies inside."""
        if candidate.doc_id == self.best.doc_id and self.first <= candidate.chunk <= self.last:
            self.matches.append(match(self.rows[candidate.chunk], candidate.score))

    def text(self) -> str | None:
        """Return the characters from start to end; None if a chunk between is missing."""
        run = [self.rows.get(chunk) for chunk in range(self.first, self.last + 1)]
        rows = [row for row in run if row is not None]
        text = "".join(row.text + row.gap for row in rows[:-1]) + rows[-1].text
        return text if len(rows) == len(run) and len(text) == self.end - self.start else None


def passage_hits(found: Sequence[Candidate], k: int, max_chars: int, content: Content, fetch: Fetch) -> list[Hit]:
    """Build passages from the chunks that were found.

    Parameters
    ----------
    found : sequence of Candidate
        Best first.
    k : int
        Most passages to build. Chunks that come after the first of the k-th passage do not widen any, they are
        only noted where they lie inside: context around better chunks is worth more.
    max_chars : int
        Budget of a passage; only a single chunk may be longer.
    content, fetch : callable
        Read candidates, and rows by id.

    Returns
    -------
    list of Hit
        Best first. Passages of one document do not overlap.
    """
    passages: list[Passage] = []
    read = 0
    for page in pages(found, k):
        for row in content(page):
            if len(passages) < k and not any(passage.join(row, max_chars) for passage in passages):
                passages.append(Passage.around(row))
        read += len(page)
        if len(passages) == k:
            break
    _grow(passages, max_chars, fetch)
    for candidate in found[read:]:
        for passage in passages:
            passage.note(candidate)
    return [_hit(passage) for passage in passages]


def _grow(passages: Sequence[Passage], max_chars: int, fetch: Fetch) -> None:
    """Add context to all passages; each round asks for the surroundings of all that are not done in one call."""
    growing = list(passages)
    for _ in range(_MAX_ROUNDS):
        asked = [(passage, _surroundings(passage, max_chars)) for passage in growing]
        found = fetch(list(dict.fromkeys(row_id(p.best.doc_id, chunk) for p, chunks in asked for chunk in chunks)))
        growing = []
        for passage, chunks in asked:
            for chunk in chunks:
                row = found.get(row_id(passage.best.doc_id, chunk))
                if row is not None and passage.same_text(row):
                    passage.rows[chunk] = row
            if _widen(passage, _taken(passage, passages), max_chars, set(chunks)):
                growing.append(passage)
        if not growing:
            return


def _surroundings(passage: Passage, max_chars: int) -> list[int]:
    """Choose the chunks to ask for: those between, and as many on either side as may fit."""
    size = passage.end - passage.start
    average = max(1, size // (passage.last - passage.first + 1))
    reach = min(_MAX_REACH, max(0, max_chars - size) // average + 1) if size < max_chars else 0
    around = range(max(0, passage.first - reach), passage.last + reach + 1)
    return [chunk for chunk in around if chunk not in passage.rows]


def _taken(passage: Passage, passages: Iterable[Passage]) -> set[int]:
    """Return the chunks of the same document that other passages hold."""
    return {
        chunk
        for other in passages
        if other is not passage and other.best.doc_id == passage.best.doc_id
        for chunk in range(other.first, other.last + 1)
    }


def _widen(passage: Passage, taken: set[int], max_chars: int, asked: set[int]) -> bool:
    """Take in neighbours, the shorter side first, while they fit; return whether more were worth fetching."""
    sides = {-1, 1}
    more = False
    while sides:
        before = passage.best.start - passage.start
        after = passage.end - passage.best.end
        side = (-1 if before < after else 1) if len(sides) == 2 else next(iter(sides))
        chunk = passage.first - 1 if side < 0 else passage.last + 1
        row = passage.rows.get(chunk)
        if row is None or chunk in taken:
            # A chunk that was asked for and is not there lies beyond the end of the document.
            more = more or (chunk >= 0 and chunk not in taken and chunk not in asked)
            sides.discard(side)
        elif max(passage.end, row.end) - min(passage.start, row.start) > max_chars:
            sides.discard(side)
        else:
            passage.first, passage.last = min(passage.first, chunk), max(passage.last, chunk)
    return more


def _hit(passage: Passage) -> Hit:
    best, text = passage.best, passage.text()
    if text is None:  # a chunk between was deleted a moment ago
        return Hit.of(best)
    whole = holds_all(passage.rows[passage.first], passage.last)
    return Hit.over(best, (passage.start, passage.end), text, passage.matches, whole=whole)
