"""Hard negatives: texts that look like the answer to a query and are not."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lmk_embed.errors import ConfigError, missing_extra
from lmk_embed.evaluation.report import write_files
from lmk_embed.training.corpus import CorpusError
from lmk_embed.training.labelled import read_pairs
from lmk_embed.training.workspace import report_problems

if TYPE_CHECKING:
    from lmk_embed.encoder import LandmarkEncoder


@dataclass(frozen=True, slots=True)
class Mined:
    """What :func:`mine` has written.

    Attributes
    ----------
    rows : int
        Queries with enough negatives.
    left_out : int
        Queries without.
    """

    rows: int
    left_out: int


def mine(
    paths: Sequence[Path],
    encoder: LandmarkEncoder,
    out: Path,
    *,
    sources: Sequence[str] = (),
    negatives: int = 4,
    margin: float = 0.05,
    cross_encoder: str | None = None,
    show_progress: bool = False,
) -> Mined:
    """Find for each query the positives of other queries that the model takes for its own.

    Parameters
    ----------
    paths : sequence of Path
        Rows with ``query`` and ``positive``, or BEIR folders; see :func:`read_pairs`.
    encoder : LandmarkEncoder
        Ranks the candidates.
    out : Path
        ``.jsonl`` or ``.jsonl.gz``; replaced when all is done. Rows have ``query``, ``positive`` and ``negatives``
        for the recipe ``contrastive``, and ``candidates`` with ``scores`` for ``kd``.
    sources : sequence of str
        Patterns for the ``source`` of a row; empty: all.
    negatives : int
        For each query.
    margin : float
        A text within this share of the positive's score is left out: it may be an answer, too.
    cross_encoder : str, optional
        Folder or hub id of a model that scores the candidates in place of the encoder.
    show_progress : bool

    Returns
    -------
    Mined

    Raises
    ------
    ConfigError
        If a number is out of range, or ``out`` has another ending.
    CorpusError
        If there are no rows, or no query has enough negatives.
    """
    if negatives < 1 or not 0 <= margin < 1:
        raise ConfigError(f"negatives must be at least 1 and margin in [0, 1), got {negatives} and {margin}")
    if not out.name.endswith((".jsonl", ".jsonl.gz")):
        raise ConfigError(f"{out} must end in .jsonl or .jsonl.gz")
    try:
        from datasets import Dataset
        from sentence_transformers import CrossEncoder
        from sentence_transformers.util import mine_hard_negatives

        from sentence_transformers_lmk import to_sentence_transformer
    except ImportError as error:
        raise missing_extra(str(error.name), "train") from error

    found = read_pairs(paths, sources)
    report_problems(found.facts)
    # A second row of the same pair would find nothing new.
    pairs = list({(row["query"], row["positive"]): None for row in found.rows})
    texts = len({positive for _, positive in pairs})
    if texts <= negatives:
        raise CorpusError(
            f"{texts} different positives cannot give {negatives} negatives to a query; give more rows"
        )
    mined = mine_hard_negatives(
        Dataset.from_dict({"query": [q for q, _ in pairs], "positive": [p for _, p in pairs]}),
        to_sentence_transformer(encoder),
        cross_encoder=None if cross_encoder is None else CrossEncoder(cross_encoder),
        num_negatives=negatives,
        relative_margin=margin,
        query_prompt=encoder.config.query_prompt or None,
        corpus_prompt=encoder.config.document_prompt or None,
        output_format="n-tuple",
        output_scores=True,
        verbose=show_progress,
    )
    if not len(mined):
        raise CorpusError(
            f"none of {len(pairs)} queries has {negatives} negatives below {1 - margin:g} of its positive's "
            "score; lower --negatives or --margin"
        )
    _write(out, [_row(row, negatives) for row in mined])
    return Mined(len(mined), len(pairs) - len(mined))


def _row(row: dict[str, Any], negatives: int) -> dict[str, Any]:
    wrong = [row[f"negative_{number}"] for number in range(1, negatives + 1)]
    return {
        "query": row["query"],
        "positive": row["positive"],
        "negatives": wrong,
        "candidates": [row["positive"], *wrong],
        "scores": [round(float(score), 6) for score in row["scores"]],
    }


def _write(out: Path, rows: Sequence[dict[str, Any]]) -> None:
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
    write_files(out.parent, {out.name: gzip.compress(text, mtime=0) if out.name.endswith(".gz") else text})
