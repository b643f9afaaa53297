"""An index as one Parquet file, to move it between machines without embedding anything again.

One row a chunk, in the order of documents and chunks; what belongs to a whole document is in the row of its first
chunk. The schema's metadata says which encoder the vectors come from. The user's metadata is JSON, which keeps
all values that a store takes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from chroma_lmk import metadata as codec
from chroma_lmk.atomic import replaced
from chroma_lmk.errors import DamagedStoreError, ExportFileError, FingerprintMismatchError, StoreError
from chroma_lmk.ingest import WRITE_ROWS, AddReport
from chroma_lmk.reader import Reader
from chroma_lmk.rows import COMPLETE, DOC, LEAD, NORM, TOKENS, document_digest, document_rows, read_state
from chroma_lmk.settings import FORMAT, StoreInfo
from chroma_lmk.whole import WholeDocument, read_whole
from chroma_lmk.writer import Prepared
from lmk_embed.errors import missing_extra
from lmk_embed.results import Chunk, Document, DocumentEmbedding

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

_INFO = b"lmk:store"
_ROW_GROUP = 2_000  # 3 MB of vectors of 384
_SCANS = 3
_TOLERANCE = 1e-3


@dataclass(frozen=True, slots=True)
class ExportReport:
    """What an export has written.

    Attributes
    ----------
    documents, chunks : int
    """

    documents: int
    chunks: int


def export_info(path: str | Path) -> StoreInfo:
    """Say what an exported index comes from, for example to build its encoder.

    Parameters
    ----------
    path : str or Path

    Returns
    -------
    StoreInfo
        Of the store that was exported.

    Raises
    ------
    ExportFileError
        If no store has written the file, a newer version has, or it is damaged.
    FileNotFoundError
    MissingExtraError
        If pyarrow is not installed.

    Examples
    --------
    >>> from lmk_embed import LandmarkEncoder
    >>> encoder = LandmarkEncoder.from_dict(export_info("index.parquet").encoder)  # doctest: +SKIP
    """
    with _opened(Path(path)) as file:
        return _info(Path(path), file)


def export_rows(reader: Reader | None, info: StoreInfo, path: str | Path) -> ExportReport:
    """Write all complete documents; see ``LandmarkStore.export``."""
    _, pq = _pyarrow()
    schema = _schema(info)
    documents = chunks = 0
    with (
        replaced(Path(path)) as temporary,
        pq.ParquetWriter(temporary, schema, compression="zstd", write_page_checksum=True) as writer,
    ):
        for whole in _documents(reader) if reader else ():
            rows = [row for each in whole for row in _file_rows(each)]
            vectors = np.concatenate([each.vectors for each in whole])
            writer.write_batch(_record_batch(schema, rows, vectors), row_group_size=_ROW_GROUP)
            documents, chunks = documents + len(whole), chunks + len(rows)
    return ExportReport(documents, chunks)


def import_rows(
    path: str | Path,
    info: StoreInfo,
    limit: int,
    write: Callable[[Sequence[Prepared]], set[str]],
    digests: Callable[[Iterable[str]], dict[str, str]],
) -> AddReport:
    """Store the documents of a file.

    Parameters
    ----------
    path : str or Path
    info : StoreInfo
        Of the store they go to.
    limit : int
        Most rows the server takes in one call.
    write, digests : callable
        Write documents, and return the digests of those that are stored.

    Returns
    -------
    AddReport

    Raises
    ------
    ExportFileError
        If no store has written the file, a newer version has, or it is damaged.
    FingerprintMismatchError
        If its vectors come from another encoder.
    """
    path = Path(path)
    added = replaced = unchanged = chunks = tokens = 0
    with _opened(path) as file:
        origin = _info(path, file)
        if origin.fingerprint != info.fingerprint:
            raise FingerprintMismatchError(origin.collection, origin.fingerprint, info.fingerprint, file=path)
        for batch in _batches(_embeddings(path, _read_rows(path, file))):
            stored = digests(each.document.id for each in batch)
            changed = [each for each in batch if stored.get(each.document.id) != each.digest]
            before = write([_prepared(path, each, limit) for each in changed]) if changed else set()
            unchanged += len(batch) - len(changed)
            replaced += len(before)
            added += len(changed) - len(before)
            chunks += sum(len(each.embedding.chunks) for each in changed)
            tokens += sum(each.embedding.n_tokens for each in changed)
    return AddReport(added, replaced, unchanged, chunks=chunks, tokens=tokens)


@dataclass(frozen=True, slots=True)
class _Imported:
    document: Document
    embedding: DocumentEmbedding
    digest: str


def _documents(reader: Reader) -> Iterator[list[WholeDocument]]:
    """Yield complete documents, about a row group at a time."""
    sizes: dict[str, int] = {}
    for _ in range(_SCANS):
        before = reader.count()
        found = reader.scan({COMPLETE: True})
        sizes |= {str(stored[DOC]): read_state(stored).chunks for _, stored in found}
        if reader.count() == before:
            break  # else rows that were deleted meanwhile may have made the scan skip others
    page: list[str] = []
    size = 0
    for doc_id, count in sizes.items():
        if page and size + count > _ROW_GROUP:
            yield _read(reader, page)
            page, size = [], 0
        page.append(doc_id)
        size += count
    if page:
        yield _read(reader, page)


def _read(reader: Reader, doc_ids: Sequence[str]) -> list[WholeDocument]:
    whole, broken = read_whole(reader, doc_ids)
    changed = [key for key, each in whole.items() if document_digest(_document(each)) != each.state.digest]
    if broken or changed:
        raise DamagedStoreError(
            f"the rows of document {(broken + changed)[0]!r} do not make up what was added: some are missing or "
            "were changed by another program. Add the document again, or remove what is left with "
            "verify(repair=True); nothing was exported"
        )
    return list(whole.values())


def _document(whole: WholeDocument) -> Document:
    return Document(whole.doc_id, whole.text, codec.decode(whole.rows[0].metadata))


def _file_rows(whole: WholeDocument) -> list[dict[str, Any]]:
    rows = [
        {
            "doc_id": whole.doc_id,
            "chunk": row.chunk,
            "start": row.start,
            "end": row.end,
            "text": row.text,
            "gap": row.gap,
            "tokens": int(row.metadata[TOKENS]),
            "norm": float(row.metadata[NORM]),
        }
        for row in whole.rows
    ]
    first = whole.rows[0]
    rows[0] |= {
        "lead": str(first.metadata.get(LEAD, "")),
        "chunks": whole.state.chunks,
        "digest": whole.state.digest,
        "metadata": codec.canonical(codec.decode(first.metadata)),
    }
    return rows


def _schema(info: StoreInfo) -> pa.Schema:
    pa, _ = _pyarrow()
    return pa.schema(
        [
            pa.field("doc_id", pa.string(), nullable=False),
            pa.field("chunk", pa.int64(), nullable=False),
            pa.field("start", pa.int64(), nullable=False),
            pa.field("end", pa.int64(), nullable=False),
            pa.field("text", pa.string(), nullable=False),
            pa.field("gap", pa.string(), nullable=False),
            pa.field("tokens", pa.int64(), nullable=False),
            pa.field("norm", pa.float32(), nullable=False),
            pa.field("lead", pa.string()),
            pa.field("chunks", pa.int64()),
            pa.field("digest", pa.string()),
            pa.field("metadata", pa.string()),
            pa.field("vector", pa.list_(pa.float32(), info.dimension), nullable=False),
        ],
        metadata={_INFO: json.dumps(asdict(info)).encode()},
    )


def _record_batch(schema: pa.Schema, rows: list[dict[str, Any]], vectors: np.ndarray[Any, Any]) -> pa.RecordBatch:
    pa, _ = _pyarrow()
    columns = [
        pa.array([row.get(field.name) for row in rows], field.type) for field in schema if field.name != "vector"
    ]
    flat = pa.array(np.ascontiguousarray(vectors, dtype=np.float32).reshape(-1))
    columns.append(pa.FixedSizeListArray.from_arrays(flat, type=schema.field("vector").type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _info(path: Path, file: pq.ParquetFile) -> StoreInfo:
    stored = (file.schema_arrow.metadata or {}).get(_INFO)
    if stored is None:
        raise ExportFileError(f"{path} was not written by LandmarkStore.export; its columns are {_names(file)}")
    try:
        info = StoreInfo(**json.loads(stored))
    except (TypeError, ValueError) as error:
        version = _format(stored)
        if version > FORMAT:
            raise _too_new(path, version) from None
        raise ExportFileError(f"{path} does not say what it holds: {error}") from error
    if info.format > FORMAT:
        raise _too_new(path, info.format)
    expected = _schema(info)
    if not file.schema_arrow.equals(expected):
        raise ExportFileError(f"{path} has the columns {_names(file)}, expected {', '.join(expected.names)}")
    return info


def _format(stored: bytes) -> int:
    try:
        return int(json.loads(stored)["format"])
    except (TypeError, ValueError, LookupError):
        return FORMAT


def _too_new(path: Path, version: int) -> ExportFileError:
    return ExportFileError(
        f"{path} has format {version}, this version of chroma_lmk reads up to {FORMAT}: upgrade lmk-embed"
    )


def _names(file: pq.ParquetFile) -> str:
    return ", ".join(file.schema_arrow.names)


def _read_rows(path: Path, file: pq.ParquetFile) -> Iterator[tuple[dict[str, Any], np.ndarray[Any, Any]]]:
    with _readable(path):
        for batch in file.iter_batches(batch_size=_ROW_GROUP):
            flat = batch.column("vector").flatten().to_numpy(zero_copy_only=False)
            vectors = flat.reshape(batch.num_rows, -1)
            yield from zip(batch.drop_columns(["vector"]).to_pylist(), vectors, strict=True)


def _embeddings(path: Path, rows: Iterable[tuple[dict[str, Any], np.ndarray[Any, Any]]]) -> Iterator[_Imported]:
    own: list[tuple[dict[str, Any], np.ndarray[Any, Any]]] = []
    seen: set[str] = set()
    for row, vector in rows:
        if row["chunk"] == 0:
            if own:
                yield _imported(path, own)
            own = []
            if row["doc_id"] in seen:
                raise ExportFileError(f"{path} holds document {row['doc_id']!r} twice")
            seen.add(row["doc_id"])
        own.append((row, vector))
    if own:
        yield _imported(path, own)


def _imported(path: Path, own: Sequence[tuple[dict[str, Any], np.ndarray[Any, Any]]]) -> _Imported:
    """Build a document from its rows; refuse one that is not exactly what was exported."""
    first, doc_id = own[0][0], own[0][0]["doc_id"]
    whole = [row["chunk"] for row, _ in own] == list(range(first["chunks"] or 0))
    if not whole or any(row["doc_id"] != doc_id for row, _ in own):
        raise ExportFileError(f"{path}: the chunks of document {doc_id!r} are not all there, or not in order")
    text = (first["lead"] or "") + "".join(row["text"] + row["gap"] for row, _ in own)
    try:
        metadata = json.loads(first["metadata"] or "")
        document = Document(doc_id, text, metadata)
        same = document_digest(document) == first["digest"]
    except (TypeError, ValueError, AttributeError):
        same = False
    if not same:
        raise ExportFileError(f"{path}: text or metadata of document {doc_id!r} are not those that were exported")
    chunks = tuple(
        Chunk(row["chunk"], row["start"], row["end"], row["tokens"], row["text"], np.array(vector), row["norm"])
        for row, vector in own
    )
    if not all(_is_unit(chunk.vector) and math.isfinite(chunk.norm) for chunk in chunks):
        raise ExportFileError(f"{path}: a vector of document {doc_id!r} is not of unit length")
    tokens = sum(chunk.n_tokens for chunk in chunks)
    # The vector of the document follows from those of its chunks; the store keeps only these.
    return _Imported(document, DocumentEmbedding(text, chunks[0].vector, chunks, tokens, tokens), first["digest"])


def _is_unit(vector: np.ndarray[Any, Any]) -> bool:
    """Whether a vector can be compared; a zero vector can, it is as far from everything."""
    return not vector.any() or abs(float(np.linalg.norm(vector)) - 1) < _TOLERANCE


def _batches(documents: Iterable[_Imported]) -> Iterator[list[_Imported]]:
    batch: list[_Imported] = []
    rows = 0
    for each in documents:
        if batch and rows + len(each.embedding.chunks) > WRITE_ROWS:
            yield batch
            batch, rows = [], 0
        batch.append(each)
        rows += len(each.embedding.chunks)
    if batch:
        yield batch


def _prepared(path: Path, each: _Imported, limit: int) -> Prepared:
    stored, problems = codec.encode(each.document.metadata)
    if problems:
        raise ExportFileError(f"{path}: metadata of document {each.document.id!r}: {problems[0]}")
    large = len(each.embedding.chunks) > limit
    try:
        rows = document_rows(each.document.id, each.embedding, stored, each.digest, large=large)
    except StoreError as error:
        raise ExportFileError(f"{path}: {error}") from error
    return Prepared(each.document.id, rows)


@contextmanager
def _opened(path: Path) -> Iterator[pq.ParquetFile]:
    _, pq = _pyarrow()
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    with _readable(path):
        file = pq.ParquetFile(path, page_checksum_verification=True)
    with file:
        yield file


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Turn what pyarrow raises into an error that says what to do."""
    pa, _ = _pyarrow()
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise ExportFileError(
            f"{path} cannot be read as Parquet: {error}. It is damaged or something else; export it again"
        ) from error


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise missing_extra("pyarrow", "parquet") from error
    return pyarrow, pyarrow.parquet
