"""The text of PDF files, by pypdf (the extra ``[pdf]``)."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np

from lmk_embed.errors import missing_extra
from lmk_embed.files.decode import universal_newlines
from lmk_embed.files.skip import SkippedFile
from lmk_embed.files.source import Positions

PAGE_BREAK = "\n\f"
"""Stands between two pages: a line feed, so that no line reaches over pages, and the form feed of pdftotext."""


def extract_pages(data: bytes, path: Path) -> tuple[str, Positions]:
    """Extract the text of all pages.

    Parameters
    ----------
    data : bytes
        The whole file.
    path : Path
        For messages.

    Returns
    -------
    text : str
        The pages, joined by ``PAGE_BREAK``.
    page_starts : ndarray of int64, shape (n_pages,)
        Where each page begins in the text.

    Raises
    ------
    SkippedFile
        "encrypted" (a password is needed), "malformed" or "no_text" (scanned pages).
    MissingExtraError
        If pypdf is not installed.
    """
    try:
        import pypdf
        from pypdf.errors import DependencyError, FileNotDecryptedError
    except ImportError as error:
        raise missing_extra("pypdf", "pdf") from error
    try:
        # An empty password opens files that only restrict printing or copying; pypdf tries it by itself.
        pages = [_clean(page.extract_text()) for page in pypdf.PdfReader(io.BytesIO(data)).pages]
    except FileNotDecryptedError as error:
        raise SkippedFile(path, "encrypted", "needs a password; save a copy without one") from error
    except DependencyError as error:
        message = f"encrypted ({error}); install that package, or save a copy without encryption"
        raise SkippedFile(path, "encrypted", message) from error
    except Exception as error:  # broken files make pypdf fail in many ways, KeyError and RecursionError among them
        raise SkippedFile(path, "malformed", f"no readable PDF: {type(error).__name__}: {error}") from error
    if not any(page.strip() for page in pages):
        message = (
            f"{len(pages)} pages without text; if they are scans, run text recognition (as ocrmypdf does) first"
        )
        raise SkippedFile(path, "no_text", message)
    lengths = [len(page) + len(PAGE_BREAK) for page in pages[:-1]]
    return PAGE_BREAK.join(pages), np.cumsum([0, *lengths], dtype=np.int64)


def _clean(page: str) -> str:
    """Make the text storable: fonts with broken tables yield halves of surrogate pairs and NUL."""
    return universal_newlines(page).encode("utf-8", "replace").decode("utf-8").replace("\0", "\ufffd")
