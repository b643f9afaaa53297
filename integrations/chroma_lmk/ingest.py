"""From a stream of documents to rows: checked in batches, embedded in one stream, written in batches."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from chroma_lmk import metadata as codec
from chroma_lmk.errors import DocumentError, DuplicateIdError, MetadataError, StoreError
from chroma_lmk.protocols import Encoder
from chroma_lmk.rows import document_digest, document_rows
from chroma_lmk.writer import Prepared
from lmk_embed.results import Document, DocumentEmbedding

# A stream is checked in batches, before any document of the batch is embedded.
_CHECK_DOCUMENTS = 64
_CHECK_CHARACTERS = 2_000_000
# Embedded documents are written once they have so many rows, nearly as many as Chroma takes in a call: after each
# write of more rows than ``settings._SYNC_THRESHOLD`` it saves its index, which takes the longer the larger it is.
WRITE_ROWS = 5_000
# And at the latest after so long, since a slow encoder takes minutes for as many rows.
_WRITE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class AddReport:
    """What became of the documents of one ``add``.

    Attributes
    ----------
    added, replaced, unchanged : int
        Documents that are new, that were stored before, and that were skipped because nothing changed.
    blank : tuple of str
        Ids of documents without anything to embed; nothing is stored for them.
    truncated : tuple of str
        Ids of documents whose end is not in the vectors, because the encoder was told to truncate.
    chunks, tokens : int
        Rows that were written, and content tokens that were encoded.
    """

    added: int = 0
    replaced: int = 0
    unchanged: int = 0
    blank: tuple[str, ...] = ()
    truncated: tuple[str, ...] = ()
    chunks: int = 0
    tokens: int = 0

    @property
    def documents(self) -> int:
        """How many documents were read."""
        return self.added + self.replaced + self.unchanged + len(self.blank)


@dataclass(frozen=True, slots=True)
class _Checked:
    """A document that can be stored."""

    id: str
    text: str
    stored: codec.Stored
    digest: str


class Ingest:
    """Runs one ``add``.

    Parameters
    ----------
    encoder : Encoder
    write : callable
        Writes prepared documents and returns the ids that were stored before.
    limit : int
        Most rows the server takes in one call.
    digests : callable, optional
        Returns the digests of the complete documents among some ids; with it, unchanged documents are skipped.
    on_encoded : callable, optional
        Told of each document once it is embedded.
    """

    def __init__(
        self,
        encoder: Encoder,
        write: Callable[[Sequence[Prepared]], set[str]],
        limit: int,
        digests: Callable[[Iterable[str]], dict[str, str]] | None = None,
        on_encoded: Callable[[DocumentEmbedding], object] | None = None,
    ) -> None:
        self._encoder = encoder
        self._write = write
        self._limit = limit
        self._digests = digests
        self._on_encoded = on_encoded
        self._seen: set[str] = set()
        self._waiting: deque[_Checked] = deque()
        self._stopped_by: Exception | None = None
        self._batch: list[Prepared] = []
        self._batch_rows = 0
        self._written_at = time.monotonic()
        self._blank: list[str] = []
        self._truncated: list[str] = []
        self._added = self._replaced = self._unchanged = self._chunks = self._tokens = 0

    def run(self, documents: Iterable[Document]) -> AddReport:
        """Check, embed and write all documents.

        A document that cannot be stored ends the run, but only after those before its batch are written.
        """
        if isinstance(documents, Document | str | bytes | dict):
            raise TypeError(f"expected an iterable of Document, got {type(documents).__name__}")
        # What is there as a whole is checked as a whole; a stream only as far as it has come.
        batches = iter([list(documents)]) if isinstance(documents, list | tuple) else _batches(documents)
        first = next(batches, [])
        checked = chain([self._check(first)], map(self._check, batches))
        try:
            for embedding in self._encoder.encode_documents(self._texts(checked)):
                self._take(self._waiting.popleft(), embedding)
        finally:
            # Also when the encoder refuses a document: what it has embedded by then is not lost.
            self._flush()
        if self._stopped_by is not None:
            raise self._stopped_by
        if self._waiting:
            raise StoreError(f"the encoder returned {len(self._waiting)} results too few; they are not stored")
        return AddReport(
            added=self._added,
            replaced=self._replaced,
            unchanged=self._unchanged,
            blank=tuple(self._blank),
            truncated=tuple(self._truncated),
            chunks=self._chunks,
            tokens=self._tokens,
        )

    def _texts(self, batches: Iterable[list[_Checked]]) -> Iterator[str]:
        """Hand one text after the other to the encoder and remember whose it is."""
        try:
            for batch in batches:
                for document in batch:
                    self._waiting.append(document)
                    yield document.text
        except Exception as error:  # raised by run, once what the encoder holds is written
            self._stopped_by = error

    def _check(self, documents: list[Document]) -> list[_Checked]:
        """Refuse a batch with a document that cannot be stored, before any of it is embedded."""
        problems: list[str] = []
        checked = []
        for document in documents:
            self._check_document(document)
            stored, found = codec.encode(document.metadata)
            problems += (f"document {document.id!r}, key {problem}" for problem in found)
            if not found:
                checked.append(_Checked(document.id, document.text, stored, document_digest(document)))
        if problems:
            raise MetadataError(problems)
        return self._changed(checked)

    def _check_document(self, document: Any) -> None:
        if not isinstance(document, Document):
            raise TypeError(f"document {len(self._seen)}: expected a Document, got {type(document).__name__}")
        if not isinstance(document.id, str) or not document.id or not codec.is_utf8(document.id):
            raise DocumentError(
                f"document {len(self._seen)}: the id must be a non-empty string without lone surrogates, "
                f"got {document.id!r}"
            )
        if document.id in self._seen:
            raise DuplicateIdError(f"document id {document.id!r} came twice in one call")
        if not isinstance(document.text, str):
            raise DocumentError(
                f"document {document.id!r}: the text must be a string, got {type(document.text).__name__}"
            )
        if not codec.is_utf8(document.text):
            raise DocumentError(
                f"document {document.id!r}: the text holds a lone surrogate and cannot be stored; decode the file "
                "with errors='replace', or text.encode('utf-16', 'surrogatepass').decode('utf-16')"
            )
        self._seen.add(document.id)

    def _changed(self, documents: list[_Checked]) -> list[_Checked]:
        if self._digests is None:
            return documents
        known = self._digests(document.id for document in documents)
        changed = [document for document in documents if known.get(document.id) != document.digest]
        self._unchanged += len(documents) - len(changed)
        return changed

    def _take(self, document: _Checked, embedding: DocumentEmbedding) -> None:
        if embedding.text != document.text:
            raise StoreError(f"the encoder returned another text than that of document {document.id!r}")
        rows = document_rows(
            document.id, embedding, document.stored, document.digest, large=len(embedding.chunks) > self._limit
        )
        self._tokens += embedding.n_tokens
        if embedding.truncated:
            self._truncated.append(document.id)
        if not rows:
            self._blank.append(document.id)
        if self._batch_rows + len(rows) > WRITE_ROWS:
            self._flush()
        self._batch.append(Prepared(document.id, rows))
        self._batch_rows += len(rows)
        if self._on_encoded is not None:
            self._on_encoded(embedding)
        if time.monotonic() - self._written_at > _WRITE_SECONDS:
            self._flush()

    def _flush(self) -> None:
        if not self._batch:
            return
        batch, self._batch, self._batch_rows = self._batch, [], 0
        self._written_at = time.monotonic()
        before = self._write(batch)
        stored = [document for document in batch if document.rows]
        replaced = sum(document.doc_id in before for document in stored)
        self._replaced += replaced
        self._added += len(stored) - replaced
        self._chunks += sum(len(document.rows) for document in stored)


def _batches(documents: Iterable[Document]) -> Iterator[list[Document]]:
    batch: list[Document] = []
    characters = 0
    for document in documents:
        batch.append(document)
        characters += len(getattr(document, "text", None) or "")
        if len(batch) >= _CHECK_DOCUMENTS or characters >= _CHECK_CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch
