"""Passages: neighbouring chunks that answer together, with as much context as a character budget allows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from chroma_lmk.context import Surroundings, widened
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
    """A span of one document that grows while it is built.

    Attributes
    ----------
    best : StoredRow
        The chunk that answers best.
    matches : list of Match
        All chunks that were found, best first.
    start, end : int
        Character span in the source.
    rows : dict of int to StoredRow
        The chunks that are known, by index; more than the passage has, once its surroundings were fetched.
    absent : set of int
        Indices without a chunk, as far as they were asked for.
    """

    best: StoredRow
    matches: list[Match]
    start: int
    end: int
    rows: dict[int, StoredRow]
    absent: set[int] = field(default_factory=set)

    @classmethod
    def around(cls, row: StoredRow) -> Passage:
        """Start a passage with the chunk that was found."""
        return cls(row, [match(row, row.score)], row.start, row.end, {row.chunk: row})

    def join(self, row: StoredRow, max_chars: int) -> bool:
        """Take a chunk of the same document in, if the passage stays within the budget."""
        if not self._same_text(row) or max(self.end, row.end) - min(self.start, row.start) > max_chars:
            return False
        self.matches.append(match(row, row.score))
        self.rows[row.chunk] = row
        self.start, self.end = min(self.start, row.start), max(self.end, row.end)
        return True

    def note(self, candidate: Candidate) -> None:
        """Note a chunk that was found, if it lies inside."""
        row = self.rows.get(candidate.chunk) if candidate.doc_id == self.best.doc_id else None
        if row is not None and self.start <= row.start and row.end <= self.end:
            self.matches.append(match(row, candidate.score))

    def surroundings(self, max_chars: int) -> list[int]:
        """Choose the chunks to ask for: those between, and as many on either side as may fit."""
        low, high = min(self.rows), max(self.rows)
        wanted = set(range(low, high))
        room = max_chars - (self.end - self.start)
        first, last = self.rows[low], self.rows[high]
        average = max(1, (last.end - first.start) // (high - low + 1))
        if room > 0 and low - 1 not in self.absent and (left := room - (self.start - first.start)) >= 0:
            wanted.update(range(max(0, low - 1 - min(_MAX_REACH, left // average)), low))
        if room > 0 and high + 1 not in self.absent and (left := room - (last.end - self.end)) >= 0:
            wanted.update(range(high + 1, high + 2 + min(_MAX_REACH, left // average)))
        return sorted(wanted - self.rows.keys() - self.absent)

    def learn(self, chunks: Iterable[int], found: Mapping[str, StoredRow]) -> None:
        """Take in what was asked for."""
        for chunk in chunks:
            row = found.get(row_id(self.best.doc_id, chunk))
            if row is not None and self._same_text(row):
                self.rows[chunk] = row
            else:
                self.absent.add(chunk)

    def widen(self, max_chars: int, language: str, others: Iterable[Passage]) -> None:
        """Grow within the budget, up to the other passages of the same document."""
        run, rivals = self._run(), [each for each in others if each is not self and each._same_text(self.best)]
        offset, known = run[0].start, _joined(run)
        if known is None or not offset <= self.start <= self.end <= run[-1].end:
            return
        low = max((each.end for each in rivals if each.end <= self.start), default=0)
        high = min((each.start for each in rivals if each.start >= self.end), default=run[-1].end)
        surroundings = Surroundings(
            known,
            [(row.start - offset, row.end - offset) for row in run],
            opens=run[0].chunk == 0,
            closes=run[-1].chunk + 1 in self.absent,
        )
        core, bounds = (self.start - offset, self.end - offset), (low - offset, high - offset)
        start, end = widened(surroundings, core, bounds, max_chars, language)
        self.start, self.end = offset + start, offset + end

    def hit(self) -> Hit:
        """Return the passage as a search result."""
        run = self._run()
        offset, text = run[0].start, _joined(run)
        if text is None or not offset <= self.start <= self.end <= run[-1].end:
            return Hit.of(self.best)  # a chunk between was deleted a moment ago
        inside = [row for row in run if self.start <= row.start and row.end <= self.end]
        whole = bool(inside) and holds_all(inside[0], inside[-1].chunk)
        text = text[self.start - offset : self.end - offset]
        return Hit.over(self.best, (self.start, self.end), text, self.matches, whole=whole)

    def _same_text(self, row: StoredRow) -> bool:
        """Whether a row belongs to the same state of the same document."""
        return row.doc_id == self.best.doc_id and row.version == self.best.version

    def _run(self) -> list[StoredRow]:
        """Return the chunks around the best one that are known without a gap."""
        first = last = self.best.chunk
        while first - 1 in self.rows:
            first -= 1
        while last + 1 in self.rows:
            last += 1
        return [self.rows[chunk] for chunk in range(first, last + 1)]


def _joined(run: Sequence[StoredRow]) -> str | None:
    """Return the characters that a run of chunks covers; None if they do not fit together."""
    text = "".join(row.text + row.gap for row in run[:-1]) + run[-1].text
    return text if len(text) == run[-1].end - run[0].start else None


def passage_hits(
    found: Sequence[Candidate], k: int, max_chars: int, language: str, content: Content, fetch: Fetch
) -> list[Hit]:
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
    language : str
        Of the sentences by which a passage grows.
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
    _fetch_surroundings(passages, max_chars, fetch)
    for passage in passages:
        passage.widen(max_chars, language, passages)
    for candidate in found[read:]:
        for passage in passages:
            passage.note(candidate)
    return [passage.hit() for passage in passages]


def _fetch_surroundings(passages: Sequence[Passage], max_chars: int, fetch: Fetch) -> None:
    """Read the chunks around all passages, those of all in one call, until what may fit is known."""
    for _ in range(_MAX_ROUNDS):
        asked = [(each, chunks) for each in passages if (chunks := each.surroundings(max_chars))]
        if not asked:
            return
        ids = dict.fromkeys(row_id(each.best.doc_id, chunk) for each, chunks in asked for chunk in chunks)
        found = fetch(list(ids))
        for passage, chunks in asked:
            passage.learn(chunks, found)
