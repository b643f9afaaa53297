"""Measure retrieval: systems over the same model, on data sets in BEIR layout, with confidence intervals.

>>> from lmk_embed.evaluation import parse_systems
>>> [spec.name for spec in parse_systems(["landmark", "smoothed:64"])]
['landmark', 'smoothed:64']
"""

from lmk_embed.evaluation.data import Dataset, DatasetError, read_dataset
from lmk_embed.evaluation.embedders import Embedder, EncoderEmbedder
from lmk_embed.evaluation.models import Model
from lmk_embed.evaluation.position import PositionReport, position_bias
from lmk_embed.evaluation.report import Report
from lmk_embed.evaluation.run import Statistics, evaluate
from lmk_embed.evaluation.scoring import Cutoffs, Scores, score
from lmk_embed.evaluation.systems import System, SystemSpec, build, parse_systems
from lmk_embed.evaluation.vectors import CorpusVectors

__all__ = [
    "CorpusVectors",
    "Cutoffs",
    "Dataset",
    "DatasetError",
    "Embedder",
    "EncoderEmbedder",
    "Model",
    "PositionReport",
    "Report",
    "Scores",
    "Statistics",
    "System",
    "SystemSpec",
    "build",
    "evaluate",
    "parse_systems",
    "position_bias",
    "read_dataset",
    "score",
]
