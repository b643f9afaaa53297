"""Protection of Chroma's index files against a process that dies while they are being written.

Chroma 1.5 overwrites its index files in place. A process that is killed in those few milliseconds leaves files
that no process can open any more: every later call on the collection fails. Until the files are complete,
though, the database still knows which change the *old* files reached, and the log still holds all later ones. So
a copy of the old files is all it takes to go back: Chroma replays the log on top of it and nothing is lost.

The copy is made only before a write that will make Chroma save its index, and removed right after.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from chroma_lmk.chroma_files import ChromaFiles

DIRECTORY = "lmk-recovery"


class IndexBackup:
    """Copies and restores the index files of one collection.

    All methods expect that no other process writes to the database meanwhile.

    Parameters
    ----------
    files : ChromaFiles
    collection_id : str
    """

    def __init__(self, files: ChromaFiles, collection_id: str) -> None:
        self._files = files
        self._collection_id = collection_id
        root = files.path / DIRECTORY
        self._copy = root / collection_id
        self._marker = root / f"{collection_id}.json"

    def make(self) -> None:
        """Copy the index files; from now on ``restore`` goes back to them."""
        directory = self._files.index_directory(self._collection_id)
        if directory is None:
            return
        shutil.rmtree(self._copy, ignore_errors=True)
        self._copy.parent.mkdir(exist_ok=True)
        if directory.exists():
            shutil.copytree(directory, self._copy)
        # The marker counts, the copy does not: it appears in one step, when the copy is complete.
        content = {"directory": directory.name, "saved": self._files.saved(self._collection_id)}
        part = self._marker.with_suffix(".part")
        part.write_text(json.dumps(content), encoding="utf-8")
        part.replace(self._marker)

    def drop(self) -> None:
        """Forget the copy: the write it was made for has succeeded."""
        self._marker.unlink(missing_ok=True)
        shutil.rmtree(self._copy, ignore_errors=True)

    def restore(self) -> bool:
        """Bring the index files into a state Chroma can open, if a write was cut off.

        Returns
        -------
        bool
            Whether a cut-off write was found; then an index in memory no longer belongs to the files.
        """
        if not self._marker.exists():
            return False
        content = json.loads(self._marker.read_text(encoding="utf-8"))
        # Chroma notes how far its files reach only after they are complete: a new number means good files.
        if self._files.saved(self._collection_id) == content["saved"]:
            self._put_back(self._files.path / content["directory"])
        self.drop()
        return True

    def _put_back(self, directory: Path) -> None:
        # Copied, not moved: cut off here as well, the next process finds the marker and starts over.
        shutil.rmtree(directory, ignore_errors=True)
        if self._copy.exists():
            shutil.copytree(self._copy, directory)
