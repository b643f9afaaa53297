"""Who may touch a database when: one writing process, and readers that never see a stale index.

Chroma keeps the vector index of an embedded database in the memory of each process that uses it. A process does
not notice what another one writes: its searches miss the new vectors without an error, and if it writes as well,
it saves an index without them, which loses them for good. So for a local path

- the first write takes a lock that is held until the store is closed; another process is told so at once. It is
  held that long because a writer that let others in between would have to load the index again each time;
- before every read, the newest entry of Chroma's log is compared with the one the index in memory was loaded
  at (some ten microseconds); if another process has written, the index is loaded again;
- loading and each single write exclude each other across processes (the gate), because Chroma replays its log
  when it loads and may then write index files, too.

A server (``chroma run``) and an in-memory client need none of this.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chroma_lmk.chroma_files import ChromaFiles
from chroma_lmk.errors import StoreError, StoreLockedError
from chroma_lmk.index_backup import IndexBackup
from lmk_embed.errors import missing_extra

if TYPE_CHECKING:
    from chromadb.api import ClientAPI
    from chromadb.api.models.Collection import Collection
    from filelock import FileLock

WRITER_LOCK, GATE_LOCK, WRITER_FILE = "lmk-writer.lock", "lmk-gate.lock", "lmk-writer.json"
_GATE_SECONDS = 300.0
_DEFAULT_THRESHOLD = 1_000  # Chroma's own
_UNKNOWN = -1  # no log entry has this number


class Access:
    """Access to a server or to memory: every call is fine at any time."""

    def acquire(self) -> None:
        """Become a writer, or raise StoreLockedError at once."""

    def release(self) -> None:
        """Stop being a writer."""

    def close(self) -> None:
        """Let go of what was opened; the next call opens it again."""

    def refresh(self, collection: Collection) -> None:
        """Make sure that a read sees everything that was written before this call."""

    @contextmanager
    def changing(self, collection: Collection | None, rows: int = 0) -> Iterator[None]:
        """Run one change of up to ``rows`` rows; ``acquire`` comes before."""
        yield


class LocalAccess(Access):
    """Access to a database directory, shared by all stores of this process that use the same Chroma instance.

    Parameters
    ----------
    path : Path
        The database directory.
    server : object
        Chroma's engine behind the client; its ``start`` loads the database again, for all clients at once.
    """

    def __init__(self, path: Path, server: Any) -> None:
        self._path = path
        self._server = weakref.ref(server)
        self._files = ChromaFiles(path)
        self._mutex = threading.RLock()
        self._writers = 0
        self._writer_lock = _file_lock(path / WRITER_LOCK)
        self._gate_lock = _file_lock(path / GATE_LOCK)
        self._started = False  # whether the index in memory was loaded under the gate, by this object
        self._loaded: dict[str, int | None] = {}  # collection id -> newest log entry its index holds
        self._current: set[str] = set()  # collections that nobody else can have changed since they were loaded

    def acquire(self) -> None:
        """Become a writer, or raise StoreLockedError at once."""
        with self._mutex:
            if not self._writers:
                self._lock()
                self._current.clear()
            self._writers += 1

    def release(self) -> None:
        """Stop being a writer; the last one of this process lets others in."""
        with self._mutex:
            if self._writers == 1:
                self._loaded |= {collection: self._files.newest(collection) for collection in self._current}
                self._current.clear()
                (self._path / WRITER_FILE).unlink(missing_ok=True)
                self._writer_lock.release()
            self._writers = max(0, self._writers - 1)

    def close(self) -> None:
        """Let go of the database file; the next call opens it again."""
        self._files.close()

    def refresh(self, collection: Collection) -> None:
        """Load the index again if another process has written to it."""
        key = str(collection.id)
        if key in self._current or self._loaded.get(key, _UNKNOWN) == self._files.newest(key):
            return
        with self._mutex, self._gate():
            self._load(collection)

    @contextmanager
    def changing(self, collection: Collection | None, rows: int = 0) -> Iterator[None]:
        """Run one change while no other process loads or writes; a failed one is undone in the index files."""
        with self._mutex, self._gate():
            if collection is None:
                yield
                return
            self._load(collection)
            with self._protected(collection, rows):
                yield

    def _load(self, collection: Collection) -> None:
        """Bring the index in memory up to date; mutex and gate are held."""
        key = str(collection.id)
        if key in self._current:
            return
        if IndexBackup(self._files, key).restore():
            self._started = False
        if not self._started or self._loaded.get(key, self._files.newest(key)) != self._files.newest(key):
            self._engine().start()
            # Those of all collections: what the others hold is loaded anew as well, by a call that is guarded.
            self._loaded.clear()
            self._current.clear()
            self._started = True
        if key not in self._loaded:
            with self._protected(collection):
                collection.count()  # the first call makes Chroma replay its log: now, while nobody writes
            self._loaded[key] = self._files.newest(key)
        if self._writers:
            self._current.add(key)

    @contextmanager
    def _protected(self, collection: Collection, rows: int = 0) -> Iterator[None]:
        """Keep a copy of the index files while Chroma may be saving them."""
        key = str(collection.id)
        backup = IndexBackup(self._files, key)
        saving = self._files.unsaved(key) + rows >= _sync_threshold(collection)
        try:
            if saving:
                backup.make()
            yield
        except BaseException:
            backup.restore()
            # Whatever was half applied in memory is loaded again from what the log holds.
            self._started = False
            self._loaded.clear()
            self._current.clear()
            raise
        if saving:
            backup.drop()

    def _engine(self) -> Any:
        engine = self._server()
        if engine is None:
            raise StoreError(f"the Chroma client of {self._path} is closed")
        return engine

    @contextmanager
    def _gate(self) -> Iterator[None]:
        from filelock import Timeout

        try:
            self._gate_lock.acquire(timeout=_GATE_SECONDS)
        except Timeout:
            raise StoreLockedError(
                f"{self._path} has been busy for {_GATE_SECONDS:.0f} s: another process is writing or loading it"
            ) from None
        try:
            yield
        finally:
            self._gate_lock.release()

    def _lock(self) -> None:
        from filelock import Timeout

        try:
            self._writer_lock.acquire(timeout=0)
        except Timeout:
            raise _locked(self._path) from None
        # Beside the lock, because older filelock versions empty the lock file of whoever holds it.
        owner = {"pid": os.getpid(), "host": socket.gethostname()}
        (self._path / WRITER_FILE).write_text(json.dumps(owner), encoding="utf-8")


def refuse_second_writer(path: str | Path) -> None:
    """Raise at once if another process is writing to a local database, before the database is opened.

    Parameters
    ----------
    path : str or Path
        The database directory; it need not exist.

    Raises
    ------
    StoreLockedError
        Naming the other process.
    """
    from filelock import Timeout

    path = Path(path)
    if not (path / WRITER_LOCK).exists():
        return
    try:
        with _file_lock(path / WRITER_LOCK).acquire(timeout=0):
            pass
    except Timeout:
        raise _locked(path) from None


def _locked(path: Path) -> StoreLockedError:
    try:
        owner = json.loads((path / WRITER_FILE).read_text(encoding="utf-8"))
        holder = f"process {owner['pid']} on {owner['host']}"
    except (OSError, ValueError, KeyError, TypeError):
        holder = "another process"
    return StoreLockedError(
        f"{path} is being written by {holder}. A local database has one writing process; wait until it is done, "
        f"or let several write through a server: chroma run --path {path}, then "
        "LandmarkStore(chromadb.HttpClient(…), …)"
    )


_local: weakref.WeakKeyDictionary[Any, LocalAccess] = weakref.WeakKeyDictionary()
_local_lock = threading.Lock()


def access_for(client: ClientAPI) -> Access:
    """Return the access object of a client; all clients on one Chroma instance of this process share it.

    Parameters
    ----------
    client : ClientAPI

    Returns
    -------
    Access
        A ``LocalAccess`` for an embedded database directory.
    """
    settings = client.get_settings()
    engine = getattr(client, "_server", None)
    if not settings.is_persistent or not hasattr(engine, "start"):
        return Access()
    with _local_lock:
        if engine not in _local:
            _local[engine] = LocalAccess(Path(settings.persist_directory).resolve(), engine)
        return _local[engine]


def _file_lock(path: Path) -> FileLock:
    try:
        from filelock import FileLock
    except ImportError as error:
        raise missing_extra("filelock", "chroma") from error
    return FileLock(path, thread_local=False)


def _sync_threshold(collection: Collection) -> int:
    hnsw = collection.configuration_json.get("hnsw") or {}
    return int(hnsw.get("sync_threshold") or _DEFAULT_THRESHOLD)
