r"""Files as text: find them, read them, and get back from the text to characters, lines and pages.

>>> import tempfile
>>> from pathlib import Path
>>> skipped = []
>>> with tempfile.TemporaryDirectory() as folder:
...     _ = Path(folder, "lease.html").write_text("<h1>Lease</h1><p>Deposit: 1700 &euro;")
...     _ = Path(folder, "logo.png").write_bytes(bytes(8))
...     sources = [read(path) for path in walk([folder], on_skip=skipped.append)]
>>> [source.text for source in sources], [skip.reason for skip in skipped]
(['Lease\n\nDeposit: 1700 €'], ['unsupported'])
>>> start, end = sources[0].to_file_span(16, 22)
>>> sources[0].file_text[start:end], sources[0].lines(start, end)
('1700 &euro;', (1, 1))
"""

from lmk_embed.files.kinds import Kind, kind_of
from lmk_embed.files.read import MAX_BYTES, RawFile, load, read
from lmk_embed.files.skip import NoSuchPathError, Reason, SkippedFile, printable
from lmk_embed.files.source import SourceMap, SourceText
from lmk_embed.files.walk import IGNORED_FOLDERS, walk

__all__ = [
    "IGNORED_FOLDERS",
    "MAX_BYTES",
    "Kind",
    "NoSuchPathError",
    "RawFile",
    "Reason",
    "SkippedFile",
    "SourceMap",
    "SourceText",
    "kind_of",
    "load",
    "printable",
    "read",
    "walk",
]
