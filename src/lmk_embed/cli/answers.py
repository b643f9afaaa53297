"""Search hits traced back to their files: lines, characters, pages."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lmk_embed.errors import LandmarkError
from lmk_embed.files import SourceText, load

if TYPE_CHECKING:
    from chroma_lmk import Hit


@dataclass(frozen=True, slots=True)
class Answer:
    """A hit and where it stands in its file.

    Attributes
    ----------
    path : str
        Absolute.
    doc_id : str
    start, end : int
        Characters of the decoded file. If the file has changed, of the text that was indexed.
    line_start, line_end : int or None
        From 1; None if the file has changed since it was indexed, or is gone.
    page : int or None
        Of a PDF, from 1.
    encoding : str or None
        That the file was decoded with; None if there is no unchanged text file.
    text : str
        The characters ``start:end``; for HTML with the tags among them.
    shown : str
        The passage for people to read; for HTML without tags.
    best : (int, int)
        The best chunk in ``shown``.
    score : float
        Cosine with the question.
    stale : bool
        Whether the file has changed since it was indexed, or is gone.
    """

    path: str
    doc_id: str
    start: int
    end: int
    line_start: int | None
    line_end: int | None
    page: int | None
    encoding: str | None
    text: str
    shown: str
    best: tuple[int, int]
    score: float
    stale: bool

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        names = ("path", "doc_id", "start", "end", "line_start", "line_end", "text", "score")
        fields = {name: getattr(self, name) for name in names}
        if self.page is not None:
            fields["page"] = self.page
        if self.encoding not in (None, "utf-8"):
            fields["encoding"] = self.encoding
        return {**fields, "stale": True} if self.stale else fields


def locate(hits: Sequence[Hit]) -> list[Answer]:
    """Trace hits back to their files, reading each file once.

    Parameters
    ----------
    hits : sequence of chroma_lmk.Hit
        Of documents that ``lmk index`` stored.

    Returns
    -------
    list of Answer
        In the order of the hits.
    """
    sources: dict[str, SourceText | None] = {}
    for hit in hits:
        if hit.doc_id not in sources:
            sources[hit.doc_id] = _unchanged_source(hit)
    return [_answer(hit, sources[hit.doc_id]) for hit in hits]


def _unchanged_source(hit: Hit) -> SourceText | None:
    """Read a hit's file as it was read for the index; None if it is not the same any more."""
    try:
        raw = load(Path(str(hit.metadata.get("path", hit.doc_id))))
        if raw.digest != hit.metadata.get("sha256"):
            return None
        return raw.parse(fallback_encoding=hit.metadata.get("encoding"))
    except (LandmarkError, OSError):
        return None


def _answer(hit: Hit, source: SourceText | None) -> Answer:
    best = hit.matches[0]
    span = (hit.start, hit.end)
    lines: tuple[int | None, int | None] = (None, None)
    text = hit.text
    page = encoding = None
    if source is not None:
        span = source.to_file_span(hit.start, hit.end)
        lines = source.lines(*span)
        page = source.page(hit.start)
        encoding = source.encoding
        text = source.file_text[span[0] : span[1]]
    return Answer(
        path=str(hit.metadata.get("path", hit.doc_id)),
        doc_id=hit.doc_id,
        start=span[0],
        end=span[1],
        line_start=lines[0],
        line_end=lines[1],
        page=page,
        encoding=encoding,
        text=text,
        shown=hit.text,
        best=(best.start - hit.start, best.end - hit.start),
        score=round(hit.score, 6),
        stale=source is None,
    )


def short_path(path: str) -> str:
    """Return a path relative to the current folder where that is shorter."""
    try:
        relative = os.path.relpath(path)
    except ValueError:  # another drive
        return path
    return min(path, relative, key=len)
