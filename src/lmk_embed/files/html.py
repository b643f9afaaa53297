"""The visible text of HTML, with the place of every character in the file.

Parsing is the standard library's ``HTMLParser``, which knows the position of each construct. It is used for
those positions only: text is taken from the file itself and decoded here, so that the length of each character
reference is known. (The library's own splitting at references, ``convert_charrefs=False``, gives up at malformed
ones in Python 3.11 and hands the tags that follow out as text.)
"""

from __future__ import annotations

import re
from html import unescape
from html.entities import html5
from html.parser import HTMLParser

import numpy as np

from lmk_embed.files.source import SourceMap, newline_positions

# Never shown, or only by programs that lack something. The `hidden` attribute and style sheets are not looked at:
# with an end tag left out they would swallow what follows, and too much text is better than lost text.
# fmt: off
_HIDDEN = frozenset((
    "script", "style", "template", "noscript", "noembed", "noframes", "iframe", "object", "audio", "video",
    "canvas", "datalist",
))
_PARAGRAPHS = frozenset((
    "p", "h1", "h2", "h3", "h4", "h5", "h6", "title", "blockquote", "pre", "xmp", "table", "figure", "hr",
    "section", "article", "aside", "header", "footer", "main", "nav",
))
_LINES = frozenset((
    "html", "head", "body", "div", "ul", "ol", "dl", "li", "dt", "dd", "tr", "thead", "tbody", "tfoot",
    "caption", "address", "center", "details", "dialog", "dir", "fieldset", "figcaption", "form", "hgroup",
    "legend", "menu", "optgroup", "option", "search", "select", "summary", "textarea",
))
# fmt: on
_CELLS = frozenset(("td", "th"))
_PREFORMATTED = frozenset(("pre", "textarea", "listing", "xmp"))

_SPACE = " \t\n\r\f"  # what HTML calls white space; a no-break space is a character
_REFERENCE = r"(?P<reference>&(?:\#(?:[0-9]+|[xX][0-9a-fA-F]+)|[a-zA-Z][a-zA-Z0-9]*);?)"
_UNSEEN = "\xad\ufeff"  # soft hyphen and zero-width no-break space: unseen, but they would cut a word in two
_FLOWING = re.compile(
    rf"(?P<space>[{_SPACE}]+)|{_REFERENCE}|[{_UNSEEN}]+"
    rf"|(?P<run>[^{_SPACE}{_UNSEEN}&]+(?: [^{_SPACE}{_UNSEEN}&]+)*|&)"
)
_VERBATIM = re.compile(rf"{_REFERENCE}|[{_UNSEEN}]+|(?P<run>[^{_UNSEEN}&]+|&)")
_MARKUP = re.compile(r"<[a-zA-Z/!?]")


def visible_text(source: str) -> tuple[str, SourceMap]:
    r"""Extract what a reader of an HTML page sees.

    Blocks are separated by a line feed, paragraphs, headings and tables by a blank line, table cells by a tab;
    white space is collapsed except in ``<pre>``. The title counts as a paragraph. Tags that are never closed or
    never finished are forgiven, as browsers do; a CDATA section is text, as in XHTML.

    Parameters
    ----------
    source : str
        The file, with line ends ``\n``.

    Returns
    -------
    text : str
    source_map : SourceMap
        From ``text`` to ``source``. A separator stands for everything between its neighbours.

    Examples
    --------
    >>> page = "<h1>Rent</h1><p>850&nbsp;&euro; <b>a\nmonth</b><script>var x</script>"
    >>> text, source_map = visible_text(page)
    >>> text
    'Rent\n\n850\xa0€ a month'
    >>> start, end = source_map.span(text.index("€"), text.index("month"))
    >>> page[start:end]
    '&euro; <b>a\n'
    """
    parser = _Parser(source)
    parser.run()
    return parser.builder.text(), parser.builder.source_map()


class _Builder:
    """Joins pieces of a file to a text; white space between them is written when the next piece is known."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._length = 0
        self._text_starts: list[int] = []
        self._file_starts: list[int] = []
        self._file_ends: list[int] = []
        self._copied = False  # the last segment is as long in the text as in the file, and can grow
        self._newlines = 0
        self._blank = ""

    def blank(self, character: str) -> None:
        """Separate the next piece by a blank or a tab."""
        if self._blank != "\t":
            self._blank = character

    def block(self, newlines: int) -> None:
        """Separate the next piece by at least this many line feeds."""
        self._newlines = max(self._newlines, newlines)

    def line_break(self) -> None:
        """Begin a new line; two in a row leave a blank line, more do not leave more."""
        self._newlines = min(self._newlines + 1, 2)

    def piece(self, text: str, start: int, end: int) -> None:
        """Add text that stands at ``start:end`` in the file."""
        if self._parts:
            separator = "\n" * (self._newlines - self._trailing_newlines()) if self._newlines else self._blank
            if separator:
                self._append(separator, self._file_ends[-1], start)
        self._newlines, self._blank = 0, ""
        self._append(text, start, end)

    def text(self) -> str:
        return "".join(self._parts)

    def source_map(self) -> SourceMap:
        starts = np.array([*self._text_starts, self._length], dtype=np.int64)
        return SourceMap(starts, np.array(self._file_starts, np.int64), np.array(self._file_ends, np.int64))

    def _trailing_newlines(self) -> int:
        last = self._parts[-1]
        return len(last) - len(last.rstrip("\n"))

    def _append(self, text: str, start: int, end: int) -> None:
        copied = len(text) == end - start
        if copied and self._copied and self._file_ends[-1] == start:
            self._file_ends[-1] = end
        else:
            self._text_starts.append(self._length)
            self._file_starts.append(start)
            self._file_ends.append(end)
        self._copied = copied
        self._parts.append(text)
        self._length += len(text)


class _Parser(HTMLParser):
    """Feeds a builder with what stands in the file between tags, comments and the like."""

    # Elements whose content holds no tags. The library's own list is shorter and depends on the version of Python:
    # in 3.11, a title that mentions <script> hides the whole page.
    CDATA_CONTENT_ELEMENTS = (  # type: ignore[misc] # declared Final, but read from the object
        *("script", "style", "title", "textarea", "xmp", "iframe", "noembed", "noframes"),
    )

    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=True)
        self.builder = _Builder()
        self._source = source
        self._line_starts: list[int] = [0, *(newline_positions(source) + 1).tolist()]
        self._hidden: list[str] = []
        self._preformatted = 0
        self._after_pre = False

    def run(self) -> None:
        """Parse the whole file."""
        self.feed(self._source)
        # What is left is text, or a comment or tag without its end. The latter is dropped, as browsers do; close()
        # would make text of it in Python 3.11, and take a time that grows with the square of the length.
        if not _MARKUP.match(self._source, self._position()):
            self.close()
            if not self._hidden:  # Python 3.11 leaves out the content of a <title> that is never closed
                self._add_text(self._position(), len(self._source))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if self._hidden:
            if tag == self._hidden[-1]:
                self._hidden.append(tag)
        elif tag in _HIDDEN:
            self._hidden.append(tag)
        elif tag == "br":
            self.builder.line_break()
        elif tag in _CELLS:
            self.builder.blank("\t")
        else:
            self._block(tag)
            if tag in _PREFORMATTED:
                self._preformatted += 1
                self._after_pre = True

    def handle_endtag(self, tag: str) -> None:
        if self._hidden:
            if tag == self._hidden[-1]:
                self._hidden.pop()
        else:
            self._block(tag)
            if tag in _PREFORMATTED and self._preformatted:
                self._preformatted -= 1

    def handle_data(self, data: str) -> None:
        """Take the text from the file; ``data`` may be decoded already, and so be shorter than it is there."""
        start = self._position()
        if self.cdata_elem is not None:
            end = start + len(data)
        elif _MARKUP.match(self._source, start):
            return  # markup that the library could not read
        elif self._source[start] == "<":
            end = start + 1
        else:
            end = self._source.find("<", start)
        if not self._hidden:
            self._add_text(start, end if end >= 0 else len(self._source))

    def unknown_decl(self, data: str) -> None:
        """Take a CDATA section as text; Word's conditional sections have no text of their own."""
        if data.startswith("CDATA[") and not self._hidden:
            start = self._position() + len("<![")
            self._add_text(start + len("CDATA["), start + len(data), cdata=True)

    def check_for_whole_start_tag(self, i: int) -> int:
        """End a tag that lacks a quote at the next ``>``; the library would drop the rest of the page."""
        end = super().check_for_whole_start_tag(i)
        return end if end >= 0 else self.rawdata.find(">", i) + 1 or -1

    def parse_marked_section(self, i: int, report: int = 1) -> int:
        """Take ``<![foo[`` for a comment, as HTML says; older versions of the library raise AssertionError."""
        try:
            return super().parse_marked_section(i, bool(report))
        except AssertionError:
            return self.parse_bogus_comment(i)

    def _position(self) -> int:
        line, column = self.getpos()
        return self._line_starts[line - 1] + column

    def _block(self, tag: str) -> None:
        if tag in _PARAGRAPHS:
            self.builder.block(2)
        elif tag in _LINES:
            self.builder.block(1)

    def _add_text(self, start: int, end: int, *, cdata: bool = False) -> None:
        if self._after_pre and self._source.startswith("\n", start):
            start += 1  # not part of the content, says HTML
        self._after_pre = False
        for match in (_VERBATIM if self._preformatted else _FLOWING).finditer(self._source, start, end):
            if match.lastgroup == "space":
                self.builder.blank(" ")
            elif match.lastgroup == "run" or (match.lastgroup == "reference" and cdata):
                self.builder.piece(match[0], *match.span())
            elif match.lastgroup == "reference":
                self._add_reference(match[0], match.start())

    def _add_reference(self, reference: str, start: int) -> None:
        """Add the character of a reference, and what follows when its name is only the beginning (``&notit``)."""
        decoded, end = unescape(reference), start + len(reference)
        if decoded != reference and reference[1] != "#" and reference[1:] not in html5:
            rest = end - (len(decoded) - 1)  # all names that may lack the semicolon stand for one character
            self.builder.piece(decoded[0], start, rest)
            self.builder.piece(decoded[1:], rest, end)
        elif not decoded.strip(_UNSEEN):
            pass  # also what is forbidden, such as "&#1;"
        elif decoded.strip(_SPACE) or self._preformatted:
            self.builder.piece(decoded, start, end)
        else:
            self.builder.blank(" ")
