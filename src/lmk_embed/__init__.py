"""Landmark pooling for dense embeddings of long documents; importing it loads no model and no torch."""

from importlib.metadata import version

from lmk_embed.config import LandmarkConfig
from lmk_embed.encoder import LandmarkEncoder
from lmk_embed.errors import (
    CheckpointError,
    ConfigError,
    LandmarkError,
    MissingExtraError,
    SpanError,
    TokenLimitError,
)
from lmk_embed.results import Chunk, Document, DocumentEmbedding

__version__ = version("lmk-embed")

__all__ = [
    "CheckpointError",
    "Chunk",
    "ConfigError",
    "Document",
    "DocumentEmbedding",
    "LandmarkConfig",
    "LandmarkEncoder",
    "LandmarkError",
    "MissingExtraError",
    "SpanError",
    "TokenLimitError",
]
