"""Writing a file beside its place, so that nobody ever meets half of it."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4


@contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """Write a file beside its place, and move it there once it is whole and on disk.

    What processes that were killed have left of the same file is removed.

    Parameters
    ----------
    path : Path

    Yields
    ------
    Path
        Where to write.
    """
    for part in _abandoned(path):
        part.unlink(missing_ok=True)
    temporary = path.with_name(f".{path.name}.{_host()}.{os.getpid()}.{uuid4().hex}.part")
    try:
        yield temporary
        with temporary.open("rb+") as written:
            os.fsync(written.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _abandoned(path: Path) -> list[Path]:
    """Return the parts of processes of this machine that are gone; a process elsewhere may still be writing."""
    name = re.compile(re.escape(f".{path.name}.{_host()}.") + r"(\d+)\.[0-9a-f]{32}\.part")
    if os.name != "posix" or not path.parent.is_dir():  # elsewhere a look at a process may end it
        return []
    found = ((part, name.fullmatch(part.name)) for part in path.parent.iterdir())
    return [part for part, match in found if match and not _is_alive(int(match[1]))]


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it belongs to somebody else
        pass
    return True


def _host() -> str:
    return re.sub(r"[^\w-]", "_", socket.gethostname())
