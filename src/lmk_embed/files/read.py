"""Read one file: its bytes once, then its text."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from dataclasses import dataclass, field
from pathlib import Path

from lmk_embed.files.decode import decode
from lmk_embed.files.html import visible_text
from lmk_embed.files.kinds import Kind, kind_of
from lmk_embed.files.pdf import extract_pages
from lmk_embed.files.skip import Reason, SkippedFile
from lmk_embed.files.source import SourceText

MAX_BYTES = 256 * 2**20
"""Size from which a file is left out: decoded text and its spans need several times as much memory."""


@dataclass(frozen=True, slots=True)
class RawFile:
    """The bytes of a file and their digest, before the work of decoding.

    Attributes
    ----------
    path : Path
        As it was given.
    kind : Kind
        By its name; "text" when the name says nothing.
    data : bytes
        The whole file.
    digest : str
        SHA-256 of the bytes, in hexadecimal.
    """

    path: Path
    kind: Kind
    data: bytes = field(repr=False)
    digest: str

    def parse(self, *, fallback_encoding: str | None = None) -> SourceText:
        """Decode the file and extract the text to embed.

        Parameters
        ----------
        fallback_encoding : str, optional
            Encoding of files that are not Unicode and declare none, such as "cp1252".

        Returns
        -------
        SourceText

        Raises
        ------
        SkippedFile
            If it is no text, or its encoding is unknown.
        MissingExtraError
            If a PDF is to be read without the extra ``[pdf]``.
        ConfigError
            If ``fallback_encoding`` is no text encoding.
        """
        if self.kind == "pdf":
            pages, page_starts = extract_pages(self.data, self.path)
            return SourceText(self.path, "pdf", pages, pages, None, self.digest, page_starts=page_starts)
        file_text, encoding = decode(self.data, self.path, fallback_encoding)
        if self.kind != "html":
            return SourceText(self.path, self.kind, file_text, file_text, encoding, self.digest)
        text, source_map = visible_text(file_text)
        return SourceText(self.path, self.kind, text, file_text, encoding, self.digest, source_map)


def load(path: str | os.PathLike[str], *, max_bytes: int = MAX_BYTES) -> RawFile:
    """Read the bytes of a file.

    Parameters
    ----------
    path : path-like
        A regular file, or a link to one. Pipes, sockets and devices are refused without being opened.
    max_bytes : int, default 256 MiB
        Upper bound of its size.

    Returns
    -------
    RawFile
        Compare its digest with what is known, and parse it only when it changed.

    Raises
    ------
    SkippedFile
        "not_a_file", "broken_link", "too_large" or "unreadable".
    """
    path = Path(path)
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise SkippedFile(path, "not_a_file", f"not a file but {_file_type(status.st_mode)}")
        if status.st_size > max_bytes:
            message = f"{status.st_size:,} bytes, more than the limit of {max_bytes:,}; split it"
            raise SkippedFile(path, "too_large", message)
        data = path.read_bytes()
    except OSError as error:
        raise unreadable(path, error) from error
    return RawFile(path, kind_of(path) or "text", data, hashlib.sha256(data).hexdigest())


def read(
    path: str | os.PathLike[str], *, fallback_encoding: str | None = None, max_bytes: int = MAX_BYTES
) -> SourceText:
    """Read one file as text: ``load(path).parse()``.

    Parameters
    ----------
    path : path-like
        A file of any name; an unknown suffix is read as plain text.
    fallback_encoding : str, optional
        Encoding of files that are not Unicode and declare none, such as "cp1252".
    max_bytes : int, default 256 MiB
        Upper bound of its size.

    Returns
    -------
    SourceText

    Raises
    ------
    SkippedFile
        If it cannot be read as text; ``reason`` and the message say why.
    MissingExtraError
        If it is a PDF and the extra ``[pdf]`` is not installed.
    ConfigError
        If ``fallback_encoding`` is no text encoding.
    """
    return load(path, max_bytes=max_bytes).parse(fallback_encoding=fallback_encoding)


def unreadable(path: Path, error: OSError) -> SkippedFile:
    """Turn an error of the operating system into a reason.

    Examples
    --------
    >>> unreadable(Path("a.txt"), PermissionError(13, "Permission denied")).message
    'cannot be read: Permission denied'
    """
    broken = error.errno in (errno.ENOENT, errno.ELOOP) and path.is_symlink()
    reason: Reason = "broken_link" if broken else "unreadable"
    what = "a link that leads nowhere" if broken else "cannot be read"
    return SkippedFile(path, reason, f"{what}: {error.strerror or error}")


def _file_type(mode: int) -> str:
    names = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}
    return names.get(stat.S_IFMT(mode), "a device")
