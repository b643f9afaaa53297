"""Landmark embeddings in Chroma: many vectors a document, one collection, exact spans."""

from chroma_lmk.access import refuse_second_writer
from chroma_lmk.catalog import drop_store, list_stores, store_counts
from chroma_lmk.embedding_function import LMKEmbeddingFunction
from chroma_lmk.errors import (
    DamagedStoreError,
    DocumentError,
    DuplicateIdError,
    ExportFileError,
    FingerprintMismatchError,
    MetadataError,
    NotALandmarkCollectionError,
    QueryError,
    StoreError,
    StoreLockedError,
    StoreNotFoundError,
)
from chroma_lmk.hits import DocumentInfo, Hit, Match
from chroma_lmk.ingest import AddReport
from chroma_lmk.protocols import Encoder
from chroma_lmk.rows import document_digest
from chroma_lmk.settings import DEFAULT_COLLECTION, StoreInfo
from chroma_lmk.store import LandmarkStore
from chroma_lmk.transfer import ExportReport, export_info
from chroma_lmk.verify import VerifyReport

__all__ = [
    "DEFAULT_COLLECTION",
    "AddReport",
    "DamagedStoreError",
    "DocumentError",
    "DocumentInfo",
    "DuplicateIdError",
    "Encoder",
    "ExportFileError",
    "ExportReport",
    "FingerprintMismatchError",
    "Hit",
    "LMKEmbeddingFunction",
    "LandmarkStore",
    "Match",
    "MetadataError",
    "NotALandmarkCollectionError",
    "QueryError",
    "StoreError",
    "StoreInfo",
    "StoreLockedError",
    "StoreNotFoundError",
    "VerifyReport",
    "document_digest",
    "drop_store",
    "export_info",
    "list_stores",
    "refuse_second_writer",
    "store_counts",
]
