"""What a store offers beside adding and searching: a check of all rows, and moving to another machine."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from chroma_lmk.ingest import AddReport
from chroma_lmk.session import Session
from chroma_lmk.transfer import ExportReport, export_rows, import_rows
from chroma_lmk.verify import VerifyReport, verify
from chroma_lmk.writer import Prepared


class Maintenance:
    """Part of ``LandmarkStore``."""

    _session: Session

    def digests(self, ids: Iterable[str]) -> dict[str, str]:
        """Return the digests of those documents that are stored exactly, for a quick look at what has changed.

        A document that is not whole, or of which a stopped writer left rows over, is not among them: adding it
        again puts that right.

        Parameters
        ----------
        ids : iterable of str

        Returns
        -------
        dict of str to str
            Compare with ``document_digest(document)``.
        """
        opened = self._session.find()
        if opened is None:
            return {}
        states = opened.reader.states(id_list(ids))
        digests = {doc_id: state.digest for doc_id, state in states.items() if state.clean}
        if opened.vectors is None:
            return digests
        vectors = opened.vectors.reader.states(digests)
        return {key: digest for key, digest in digests.items() if key in vectors and vectors[key].digest == digest}

    def verify(self, *, repair: bool = False) -> VerifyReport:
        """Read all rows, and find those that a crash or something else left behind.

        Parameters
        ----------
        repair : bool
            Whether to delete them. Documents that are not whole are deleted, too; add them again.

        Returns
        -------
        VerifyReport
        """
        opened = self._session.find()
        if opened is None:
            return VerifyReport()
        vectors = opened.vectors.reader if opened.vectors else None
        if not repair:
            return verify(opened.reader, vectors)
        with self._session.lock:
            return verify(opened.reader, vectors, self._session.writer())

    def export(self, path: str | Path) -> ExportReport:
        """Write all complete documents with their vectors to a Parquet file, to import them elsewhere.

        The file appears at its place once it is whole; a file that is there already is replaced then. Memory is
        bounded, apart from the ids. Writers of this process wait meanwhile; what another one changes meanwhile may
        be in the file or not.

        Parameters
        ----------
        path : str or Path

        Returns
        -------
        ExportReport

        Raises
        ------
        DamagedStoreError
            If rows of a document are missing or were changed by something else.
        MissingExtraError
            If pyarrow is not installed.
        """
        with self._session.lock:
            opened = self._session.find()
            return export_rows(opened.reader if opened else None, self._session.info, path)

    def import_(self, path: str | Path) -> AddReport:
        """Store all documents of an exported file, without embedding any.

        A document that is stored already under the same id is replaced, or left alone if it is the same. Stopped
        at any instant and run again, the store ends up the same. Documents that are not in the file stay.

        Parameters
        ----------
        path : str or Path
            What ``export`` has written, of a store with the same encoder.

        Returns
        -------
        AddReport

        Raises
        ------
        FingerprintMismatchError
            If the vectors come from another encoder; nothing was written.
        ExportFileError
            If no store has written the file, or it is damaged. Documents before the damage may have been written.
        StoreLockedError
            If another process is writing to the database.
        MissingExtraError
            If pyarrow is not installed.
        """
        return import_rows(path, self._session.info, self._session.limit(), self._write, self.digests)

    def _write(self, documents: Sequence[Prepared]) -> set[str]:
        with self._session.lock:
            if self._session.find() is None and not any(document.rows for document in documents):
                return set()
            return self._session.writer().write(documents)


def id_list(ids: Iterable[str]) -> list[str]:
    """Take ids as a list; a single string is a mistake."""
    if isinstance(ids, str):
        raise TypeError(f"expected an iterable of document ids, got the string {ids!r}; pass [{ids!r}]")
    return list(ids)
