"""Reading all rows of a document together with their vectors, so that they belong to one state of it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from chroma_lmk.reader import Reader
from chroma_lmk.rows import LEAD, NORM, State, StoredRow, row_ids
from lmk_embed.results import Matrix

_ATTEMPTS = 5
_PAUSE_SECONDS = 0.02


@dataclass(frozen=True, slots=True, eq=False)
class WholeDocument:
    """All that is stored of one complete document.

    Attributes
    ----------
    doc_id : str
    state : State
        What row 0 says.
    rows : list of StoredRow
        In chunk order.
    vectors : ndarray of float32, shape (n_chunks, D)
        Unit length.
    """

    doc_id: str
    state: State
    rows: list[StoredRow]
    vectors: Matrix

    @property
    def states(self) -> Matrix:
        """Raw chunk states, shape (n_chunks, D) float32: what coarser vectors are means of."""
        norms = np.asarray([row.metadata[NORM] for row in self.rows], dtype=np.float32)
        return self.vectors * norms[:, None]

    @property
    def text(self) -> str:
        """The caller's string."""
        return str(self.rows[0].metadata.get(LEAD, "")) + "".join(row.text + row.gap for row in self.rows)


def read_whole(reader: Reader, doc_ids: Sequence[str]) -> tuple[dict[str, WholeDocument], list[str]]:
    """Read documents with all their vectors.

    Parameters
    ----------
    reader : Reader
    doc_ids : sequence of str

    Returns
    -------
    documents : dict of str to WholeDocument
        In the order asked for, without those that are not stored completely.
    broken : list of str
        Ids of documents that are said to be complete but whose rows do not belong together, also after several
        attempts (a replacement that was under way is over by then).
    """
    found: dict[str, WholeDocument] = {}
    pending = list(dict.fromkeys(doc_ids))
    for attempt in range(_ATTEMPTS):
        if attempt:
            time.sleep(_PAUSE_SECONDS)
        states = {doc_id: state for doc_id, state in reader.states(pending).items() if state.complete}
        ids = {doc_id: row_ids(doc_id, range(state.chunks)) for doc_id, state in states.items()}
        rows = reader.rows_and_vectors([row for own in ids.values() for row in own])
        for doc_id, state in states.items():
            own = [rows[row] for row in ids[doc_id] if row in rows]
            if len(own) == state.chunks and all(row.version == state.version for row, _ in own):
                vectors = np.stack([vector for _, vector in own])
                found[doc_id] = WholeDocument(doc_id, state, [row for row, _ in own], vectors)
        pending = [doc_id for doc_id in states if doc_id not in found]
        if not pending:
            break
    return {doc_id: found[doc_id] for doc_id in dict.fromkeys(doc_ids) if doc_id in found}, pending
