"""From bytes to text, and no doubtful guess.

In this order: a byte order mark (UTF-16, UTF-32); UTF-8; the encoding that the file declares (``<meta charset>``,
an XML declaration, a coding cookie); the one the caller names for such files; detection by charset-normalizer,
taken only when one encoding fits, or one fits clearly best. Chinese, Japanese and Korean files nearly always pass,
Cyrillic ones mostly. Western and Central European ones often do not: the same bytes are good Spanish in cp1252 and
good Czech in cp1250. Those are left out, and the message names both.
"""

from __future__ import annotations

import codecs
import re
from pathlib import Path

from lmk_embed.errors import ConfigError, missing_extra
from lmk_embed.files.skip import SkippedFile

_BOMS = (
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16: its mark begins with that of UTF-16
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)

_DECLARATION = re.compile(rb"""(?:charset|coding|encoding)\s*[=:]\s*["']?([A-Za-z][\w.-]*)""", re.IGNORECASE)
_DECLARATION_BYTES = 1024

# The encodings that legacy files are in: of Windows, the web, DOS and the old Macintosh. With fewer, a file in one
# that is missing is taken for one of the others; with more, clear cases become ambiguous.
# fmt: off
_LEGACY = [
    "cp1250", "cp1251", "cp1252", "cp1253", "cp1254", "cp1255", "cp1256", "cp1257", "cp1258", "cp874",
    "iso8859_2", "iso8859_5", "iso8859_6", "iso8859_7", "iso8859_8", "iso8859_9", "iso8859_15", "koi8_r",
    "cp437", "cp850", "cp855", "cp866", "mac_roman", "mac_cyrillic",
    "cp932", "euc_jp", "gb18030", "big5", "cp949", "johab",
]
# fmt: on

# What the Encoding Standard of the web reads in place of the declared encoding: its superset that is in use.
_SUPERSETS = {
    "ascii": "cp1252",
    "iso8859-1": "cp1252",
    "iso8859-9": "cp1254",
    "tis-620": "cp874",
    "shift_jis": "cp932",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "euc_kr": "cp949",
}
_NOT_LEGACY = ("utf", "unicode", "raw", "idna", "punycode")  # a file that is not UTF-8 cannot be in these
# Measured on the 386 legacy files of chardet's test corpus, with their declarations removed: 233 are read, all in
# the right encoding; without the lead it is 189. On other texts a lead of 0.2 took English with two curly quotes
# for a text of DOS. A short French text of DOS is still taken for cp1252.
_MAX_CHAOS = 0.1  # implausible sequences of characters, as charset-normalizer measures them
_MIN_LEAD = 0.3  # by which the letters fit a language better than in the next best encoding
_SAMPLE_BYTES = 1 << 16


def decode(data: bytes, path: Path, fallback: str | None = None) -> tuple[str, str]:
    r"""Decode a file as ``open(path, encoding=…).read()`` does, finding the encoding.

    Parameters
    ----------
    data : bytes
        The whole file.
    path : Path
        For messages.
    fallback : str, optional
        Encoding of files that are not Unicode and declare none, such as "cp1252".

    Returns
    -------
    text : str
        With ``\r\n`` and ``\r`` translated to ``\n``. The mark of UTF-8 stays as U+FEFF, those of UTF-16 and
        UTF-32 do not, because the Python codecs do the same.
    encoding : str
        Name of the Python codec.

    Raises
    ------
    SkippedFile
        "binary" or "undecodable", with the position of the byte that tells.
    ConfigError
        If ``fallback`` is no text encoding.

    Examples
    --------
    >>> decode("Größe\r\n".encode(), Path("a.txt"))
    ('Größe\n', 'utf-8')
    >>> decode("Größe".encode("utf-16"), Path("a.txt"))
    ('Größe', 'utf-16')
    >>> decode(b"<meta charset=latin-1>Gr\xf6\xdfe", Path("a.html"))
    ('<meta charset=latin-1>Größe', 'cp1252')
    """
    if fallback is not None:
        _check_codec(fallback)
    marked = next((name for mark, name in _BOMS if data.startswith(mark)), None)
    if marked is None and (position := data.find(0)) >= 0:
        raise SkippedFile(path, "binary", f"not a text file: NUL byte at position {position}")
    encoding = marked or "utf-8"
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        if marked:
            raise SkippedFile(path, "undecodable", f"has the byte order mark of {_problem(error)}") from error
        text, encoding = _decode_legacy(data, path, error, fallback)
    if "\0" in text:
        raise SkippedFile(path, "binary", f"not a text file: NUL character at position {text.index(chr(0))}")
    return universal_newlines(text), encoding


def universal_newlines(text: str) -> str:
    r"""Translate line ends as text files of Python do.

    Examples
    --------
    >>> universal_newlines("a\r\nb\rc\n\r")
    'a\nb\nc\n\n'
    """
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _decode_legacy(data: bytes, path: Path, error: UnicodeDecodeError, fallback: str | None) -> tuple[str, str]:
    """Decode a file that is not UTF-8."""
    if lost := _damage(data):
        message = f"damaged {_problem(error)}, {lost} bytes in all. Save it as UTF-8 again"
        raise SkippedFile(path, "undecodable", message) from error
    named = [name for name in (_declared(data), fallback) if name is not None]
    if (decoded := _first_that_fits(data, named)) is not None:
        return decoded
    detected = _detect(data, error.start)
    if len(detected) == 1 and (decoded := _first_that_fits(data, detected)) is not None:
        return decoded
    fits = f"could be {' or '.join(detected[:4])}" if len(detected) > 1 else "no other known encoding fits"
    message = f"not {_problem(error)}; {fits}. Save it as UTF-8, or name the encoding of such files"
    raise SkippedFile(path, "undecodable", message) from error


def _first_that_fits(data: bytes, names: list[str]) -> tuple[str, str] | None:
    for name in names:
        try:
            return data.decode(name), name
        except UnicodeError:  # the base class: some codecs raise no UnicodeDecodeError
            continue
    return None


def _problem(error: UnicodeDecodeError) -> str:
    byte, name = error.object[error.start], error.encoding.upper()
    return f"{name}: {error.reason} (byte 0x{byte:02x} at position {error.start})"


def _damage(data: bytes) -> int:
    """Return the number of wrong bytes of a file that was UTF-8 once, and 0 for a file in another encoding.

    A damaged file must not be read in another encoding, or every good character in it becomes several wrong ones.
    In other encodings, sequences that happen to be valid UTF-8 are rare.
    """
    valid = data.decode("utf-8", "ignore")
    lost = len(data) - len(valid.encode("utf-8"))
    return lost if len(re.findall(r"[^\x00-\x7f]", valid)) > lost else 0


def _declared(data: bytes) -> str | None:
    """Return the codec that the first lines of a file name, if Python has it."""
    match = _DECLARATION.search(data[:_DECLARATION_BYTES])
    if match is None:
        return None
    try:
        name = codecs.lookup(match[1].decode("ascii")).name
        "a".encode(name)  # refuses codecs that are not for text, such as "hex"
    except (LookupError, UnicodeError):
        return None
    return None if name.startswith(_NOT_LEGACY) else _SUPERSETS.get(name, name)


def _detect(data: bytes, first_error: int) -> list[str]:
    """Return the plausible encodings of a file, the best first; only one if it is clear."""
    try:
        from charset_normalizer import from_bytes
    except ImportError as error:
        raise missing_extra("charset-normalizer", "cli") from error
    # From the line of the first telling byte: a long ASCII head says nothing. Whole lines, because a cut through
    # a character would rule out the right encoding; no encoding of the list has the line feed inside a character.
    start = max(data.rfind(b"\n", 0, first_error) + 1, first_error - _SAMPLE_BYTES // 2)
    sample = data[start : start + _SAMPLE_BYTES]
    if start + _SAMPLE_BYTES < len(data) and (cut := sample.rfind(b"\n")) > first_error - start:
        sample = sample[:cut]
    # Encodings in which the sample is the same text count as one match.
    matches = [m for m in from_bytes(sample, cp_isolation=_LEGACY, enable_fallback=False) if m.chaos <= _MAX_CHAOS]
    matches.sort(key=lambda match: -match.coherence)
    clear = len(matches) > 1 and matches[0].coherence - matches[1].coherence >= _MIN_LEAD
    return [match.encoding for match in matches[: 1 if clear else None]]


def _check_codec(name: str) -> None:
    try:
        "a".encode(name)
    except (LookupError, UnicodeError) as error:
        raise ConfigError(f"no text encoding is called {name!r}; examples: cp1252, shift_jis, gb18030") from error
