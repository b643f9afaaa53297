"""The vectors of whole documents in a collection of their own, so that all documents can be ranked by them.

One row a document, in the layout of row 0 of the chunks (see ``rows``), so that it is found, replaced and deleted
by the same code. The collection of the chunks stays the truth; this one may be ahead of it, never behind:

- the vector of a document is written before its chunks and deleted after them, so a document that is stored
  has one. A writer that is stopped between the two leaves a vector too many, or one of the newer state;
- a reader drops vectors whose document is not stored, and scores what is stored by its own chunks;
- a document counts as unchanged only if both collections hold the same state of it, so adding it again puts both
  right, and so does ``verify(repair=True)``.

One exception: the vector of the only document is deleted and written anew (see ``Writer``). Where no vector is
found, a search therefore looks at the chunks.

A document vector is the mean of the raw chunk states, and the rows of the chunks hold these. So nothing but rows
is needed to write one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from chroma_lmk import metadata as codec
from chroma_lmk.reader import Reader, pages
from chroma_lmk.rows import CHUNK, CHUNKS, COMPLETE, DIGEST, DOC, NORM, VERSION, Row, row_id
from chroma_lmk.whole import read_whole
from lmk_embed.results import Matrix, unit

_KEPT = (codec.CARRIED, DOC, DIGEST, VERSION)
_DOCUMENTS = 64  # read at a time to compute their vectors


def row_of_chunks(rows: Sequence[Row]) -> Row:
    """Make the row of a document from those of its chunks, of which there is one at least."""
    norms = np.asarray([row.metadata[NORM] for row in rows], dtype=np.float32)
    return _row(rows[0].metadata, np.stack([row.vector for row in rows]) * norms[:, None])


def stored_rows(reader: Reader, doc_ids: Iterable[str]) -> Iterator[list[Row]]:
    """Compute the rows of documents from what is stored of their chunks, some at a time."""
    for page in pages(doc_ids, _DOCUMENTS):
        whole, _ = read_whole(reader, page)
        yield [_row(each.rows[0].metadata, each.states) for each in whole.values()]


def _row(first: Mapping[str, Any], states: Matrix) -> Row:
    kept = {key: value for key, value in first.items() if not key.startswith(codec.PREFIX) or key in _KEPT}
    own = {CHUNK: 0, CHUNKS: 1, COMPLETE: True}
    return Row(row_id(first[DOC], 0), unit(states.mean(axis=0)), "", kept | own)
