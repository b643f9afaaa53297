"""From rows back to documents, exact to the character."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from chroma_lmk import metadata as codec
from chroma_lmk.errors import DamagedStoreError
from chroma_lmk.reader import Reader
from chroma_lmk.rows import LEAD, State, StoredRow, document_digest, row_ids
from lmk_embed.results import Document

_ATTEMPTS = 5
_PAUSE_SECONDS = 0.05


def restore(reader: Reader, doc_ids: Sequence[str]) -> list[Document]:
    """Read documents.

    Parameters
    ----------
    reader : Reader
    doc_ids : sequence of str

    Returns
    -------
    list of Document
        In the order asked for, without those that are not stored completely.

    Raises
    ------
    DamagedStoreError
        If the rows of a document do not make up what was added.
    """
    documents: dict[str, Document] = {}
    pending = list(dict.fromkeys(doc_ids))
    for attempt in range(_ATTEMPTS):
        if attempt:
            time.sleep(_PAUSE_SECONDS)
        states = {doc_id: state for doc_id, state in reader.states(pending).items() if state.complete}
        rows = reader.rows([row for doc_id in states for row in row_ids(doc_id, range(states[doc_id].chunks))])
        documents |= {
            doc_id: document
            for doc_id, state in states.items()
            if (document := _document(doc_id, state, rows)) is not None
        }
        # One that does not fit together may have been replaced between the two reads.
        pending = [doc_id for doc_id in states if doc_id not in documents]
        if not pending:
            return [documents[doc_id] for doc_id in doc_ids if doc_id in documents]
    raise DamagedStoreError(
        f"the rows of document {pending[0]!r} do not make up what was added: some are missing or were changed by "
        "another program. Add the document again, or remove what is left with verify(repair=True)"
    )


def _document(doc_id: str, state: State, rows: Mapping[str, StoredRow]) -> Document | None:
    own = [rows.get(row) for row in row_ids(doc_id, range(state.chunks))]
    whole = [row for row in own if row is not None]
    if len(whole) < state.chunks:
        return None
    text = str(whole[0].metadata.get(LEAD, "")) + "".join(row.text + row.gap for row in whole)
    document = Document(doc_id, text, codec.decode(whole[0].metadata))
    return document if document_digest(document) == state.digest else None
