"""A file as text: what is embedded, and the way back from there to characters, lines and pages of the file."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lmk_embed.errors import SpanError
from lmk_embed.files.kinds import Kind

Positions = NDArray[np.int64]


def newline_positions(text: str) -> Positions:
    r"""Return the position of every ``\n``.

    Examples
    --------
    >>> newline_positions("a\n\nb")
    array([1, 2])
    """
    return np.fromiter((match.start() for match in re.finditer("\n", text)), dtype=np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class SourceMap:
    """Where the characters of an extracted text stand in the file it was extracted from.

    The text is cut into n segments. A segment as long as its span of the file is copied character by character;
    one of another length (a decoded ``&amp;``, white space that became one blank) stands for the whole span.

    Attributes
    ----------
    text_starts : ndarray of int64, shape (n + 1,)
        Where each segment begins in the text; the last entry is the length of the text.
    file_starts, file_ends : ndarray of int64, shape (n,)
        The span of each segment in the file; rising, never overlapping.
    """

    text_starts: Positions
    file_starts: Positions
    file_ends: Positions

    def span(self, start: int, end: int) -> tuple[int, int]:
        """Return the smallest span of the file that holds the characters ``start:end`` of the text.

        Parameters
        ----------
        start, end : int
            ``0 <= start <= end <= len(text)``; not checked.

        Returns
        -------
        (int, int)
            An empty span stays empty.

        Examples
        --------
        ``a&amp;b`` was read as ``a&b``:

        >>> table = SourceMap(np.array([0, 1, 2, 3]), np.array([0, 1, 6]), np.array([1, 6, 7]))
        >>> table.span(0, 3), table.span(1, 2), table.span(2, 3)
        ((0, 7), (1, 6), (6, 7))
        """
        if start < end:
            return self._character(start)[0], self._character(end - 1)[1]
        if start < self.text_starts[-1]:
            point = self._character(start)[0]
        else:
            point = int(self.file_ends[-1]) if len(self.file_ends) else 0
        return point, point

    def _character(self, position: int) -> tuple[int, int]:
        segment = int(np.searchsorted(self.text_starts, position, side="right")) - 1
        start, end = int(self.file_starts[segment]), int(self.file_ends[segment])
        if end - start == self.text_starts[segment + 1] - self.text_starts[segment]:
            start += position - int(self.text_starts[segment])
            end = start + 1
        return start, end


@dataclass(frozen=True, eq=False)
class SourceText:
    r"""A file that was read.

    Attributes
    ----------
    path : Path
        As it was given.
    kind : Kind
        What was read: "text", "markdown", "rst", "html", "code" or "pdf".
    text : str
        The text to embed: the visible text of HTML, otherwise ``file_text`` itself.
    file_text : str
        The decoded file, equal to ``open(path, encoding=encoding).read()``: line ends are ``\n``, and the byte
        order mark of UTF-8 is the character U+FEFF. For PDF, where there is no such text, the text of all pages.
    encoding : str or None
        The codec that positions in ``file_text`` refer to; None for PDF.
    digest : str
        SHA-256 of the bytes of the file, in hexadecimal.
    source_map : SourceMap or None
        From ``text`` to ``file_text``; None where they are the same.
    page_starts : ndarray of int64 or None
        Where each page of a PDF begins; None for other kinds.
    """

    path: Path
    kind: Kind
    text: str = field(repr=False)
    file_text: str = field(repr=False)
    encoding: str | None
    digest: str
    source_map: SourceMap | None = field(default=None, repr=False)
    page_starts: Positions | None = field(default=None, repr=False)

    def to_file_span(self, start: int, end: int) -> tuple[int, int]:
        """Return where characters of ``text`` stand in the file.

        Parameters
        ----------
        start, end : int
            Span in ``text``, end exclusive.

        Returns
        -------
        (int, int)
            Span in ``file_text``. For HTML it reaches from the first to the last character, over any tags between.

        Raises
        ------
        SpanError
            If the span is outside ``text``.
        """
        _check_span(start, end, len(self.text), "text")
        return (start, end) if self.source_map is None else self.source_map.span(start, end)

    def lines(self, start: int, end: int) -> tuple[int, int]:
        r"""Return the first and the last line of a span of the file, counted from 1.

        Parameters
        ----------
        start, end : int
            Span in ``file_text``, end exclusive: a span that ends with a line's ``\n`` ends in that line.

        Returns
        -------
        (int, int)
            Both inclusive, as editors show them.

        Raises
        ------
        SpanError
            If the span is outside ``file_text``.

        Examples
        --------
        >>> source = SourceText(Path("a.txt"), "text", "one\ntwo\n", "one\ntwo\n", "utf-8", digest="")
        >>> source.lines(0, 4), source.lines(0, 5), source.lines(4, 4)
        ((1, 1), (1, 2), (2, 2))
        """
        _check_span(start, end, len(self.file_text), "file_text")
        first, last = np.searchsorted(self._newlines, [start, max(start, end - 1)])
        return int(first) + 1, int(last) + 1

    def page(self, start: int) -> int | None:
        """Return the page of a PDF, counted from 1, that holds a character of the text; None for other kinds.

        Parameters
        ----------
        start : int
            Position in ``text``.

        Raises
        ------
        SpanError
            If the position is outside ``text``.
        """
        _check_span(start, start, len(self.text), "text")
        if self.page_starts is None:
            return None
        return int(np.searchsorted(self.page_starts, start, side="right"))

    @cached_property
    def _newlines(self) -> Positions:
        return newline_positions(self.file_text)


def _check_span(start: int, end: int, length: int, name: str) -> None:
    if not 0 <= start <= end <= length:
        raise SpanError(f"span ({start}, {end}) is outside {name}, which has {length} characters")
