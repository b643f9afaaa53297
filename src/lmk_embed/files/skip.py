"""Why a file is not read: one exception with a reason that can be counted and a message that can be acted on."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from lmk_embed.errors import LandmarkError

Reason = Literal[
    "unsupported",
    "binary",
    "undecodable",
    "unreadable",
    "not_a_file",
    "broken_link",
    "linked_folder",
    "bad_name",
    "too_large",
    "encrypted",
    "malformed",
    "no_text",
]
"""Why a file was seen and not read.

``unsupported``: its suffix says it is no text we read; ``binary``: it holds NUL bytes; ``undecodable``: its
encoding is unknown or ambiguous; ``unreadable``: the system refuses it; ``not_a_file``: a pipe, socket, device
or folder; ``broken_link``; ``linked_folder``: a link to a folder that no given path covers; ``bad_name``: its name
is no text; ``too_large``; and for PDF ``encrypted``, ``malformed`` and ``no_text`` (scanned pages).
"""


class SkippedFile(LandmarkError):  # noqa: N818 - one file is skipped, the run goes on: not an error of the run
    """One file that was seen and is not read.

    Parameters
    ----------
    path : Path
        The file, or the folder that cannot be listed.
    reason : Reason
        What to count by.
    message : str
        What is wrong, the numbers, and the next step; without the path.

    Examples
    --------
    >>> skipped = SkippedFile(Path("logo.png"), "binary", "NUL byte at position 8")
    >>> skipped.reason, str(skipped)
    ('binary', 'logo.png: NUL byte at position 8')
    """

    def __init__(self, path: Path, reason: Reason, message: str) -> None:
        super().__init__(path, reason, message)  # all three, so that it survives pickling
        self.path = path
        self.reason: Reason = reason
        self.message = message

    def __str__(self) -> str:
        """Return ``path: message``."""
        return f"{printable(self.path)}: {self.message}"


class NoSuchPathError(LandmarkError, FileNotFoundError):
    """A path given by the user does not exist."""


def printable(path: str | os.PathLike[str]) -> str:
    r"""Return a file name that can be printed and stored; bytes that are no UTF-8 become ``\xNN``.

    Examples
    --------
    >>> printable("Köln.txt")
    'Köln.txt'
    >>> print(printable("K\udcf6ln.txt"))
    K\xf6ln.txt
    """
    return os.fsencode(path).decode("utf-8", "backslashreplace")
