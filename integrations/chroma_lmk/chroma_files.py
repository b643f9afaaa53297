"""What an embedded Chroma keeps on disk, read only: its log of writes and the files of its vector index.

Chroma writes every change into a log table first (one statement, atomic), applies it to its tables, then to the
vector index in memory. Only once ``sync_threshold`` changes have gathered does it write the index files, note in
``max_seq_id`` how far they reach, and drop that part of the log. A process that opens the database replays the
rest of the log. Everything this package knows about that is in this module, checked with chromadb 1.5.
"""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path
from urllib.parse import quote

from chroma_lmk.errors import StoreError

DATABASE = "chroma.sqlite3"
_BUSY_SECONDS = 60.0


class ChromaFiles:
    """A read-only view of one database directory, next to Chroma's own connection.

    Parameters
    ----------
    path : Path
        The directory given to ``chromadb.PersistentClient``.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None

    def newest(self, collection_id: str) -> int | None:
        """Return the number of the newest change in the log of a collection; None if nothing was ever written.

        It rises with every change, whoever made it. Chroma never drops the newest one.
        """
        return self._number(
            "SELECT seq_id FROM embeddings_queue WHERE topic LIKE '%/' || ? ORDER BY seq_id DESC LIMIT 1",
            collection_id,
        )

    def unsaved(self, collection_id: str) -> int:
        """Return how many changes are in the log but not yet in the index files."""
        saved = self.saved(collection_id) or 0
        return (
            self._number(
                "SELECT count(*) FROM embeddings_queue WHERE topic LIKE '%/' || ? AND seq_id > ?",
                collection_id,
                saved,
            )
            or 0
        )

    def saved(self, collection_id: str) -> int | None:
        """Return the newest change that the index files hold; None if they were never written."""
        return self._number(
            "SELECT m.seq_id FROM max_seq_id m JOIN segments s ON s.id = m.segment_id "
            "WHERE s.collection = ? AND s.scope = 'VECTOR'",
            collection_id,
        )

    def index_directory(self, collection_id: str) -> Path | None:
        """Return the directory of the index files, whether it exists yet or not."""
        rows = self._select("SELECT id FROM segments WHERE collection = ? AND scope = 'VECTOR'", collection_id)
        return self.path / str(rows[0][0]) if rows else None

    def close(self) -> None:
        """Close the connection; the next question opens it again."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _number(self, statement: str, *values: str | int) -> int | None:
        rows = self._select(statement, *values)
        return int(rows[0][0]) if rows else None

    def _select(self, statement: str, *values: str | int) -> list[tuple[str | int, ...]]:
        database = self.path / DATABASE
        with self._lock:
            try:
                if self._connection is None:
                    self._connection = sqlite3.connect(
                        f"file:{quote(str(database))}?mode=ro",
                        uri=True,
                        timeout=_BUSY_SECONDS,
                        check_same_thread=False,
                        isolation_level=None,
                    )
                return self._connection.execute(statement, values).fetchall()
            except sqlite3.Error as error:
                raise StoreError(f"{database} cannot be read: {error}") from error
