"""Position bias: whether it matters where in a document the answer stands, and how long the document is."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lmk_embed.errors import missing_extra
from lmk_embed.evaluation.cache import VectorCache
from lmk_embed.evaluation.data import Dataset
from lmk_embed.evaluation.needles import Haystack, needle_set
from lmk_embed.evaluation.report import write_files
from lmk_embed.evaluation.run import encode
from lmk_embed.evaluation.splitting import Count
from lmk_embed.evaluation.systems import System
from lmk_embed.evaluation.vectors import best_of
from lmk_embed.results import Matrix

LENGTHS = (512, 1024, 2048, 4096, 8192, 16_384, 32_768)
#: How documents are scored.
SCORINGS = ("best chunk", "document vector")


@dataclass(frozen=True, slots=True)
class Cell:
    """One system at one length and depth.

    Attributes
    ----------
    system : str
    scoring : {"best chunk", "document vector"}
    length : int
        Tokens of each document.
    depth : float
        Share of a document in front of the answer.
    mean_rank : float
        Of the right document, from 1.
    mrr : float
        Mean of 1 over that rank.
    first : float
        Share of questions whose right document comes first.
    """

    system: str
    scoring: str
    length: int
    depth: float
    mean_rank: float
    mrr: float
    first: float


@dataclass(frozen=True, slots=True)
class PositionReport:
    """What :func:`position_bias` has measured.

    Attributes
    ----------
    settings : dict
    cells : tuple of Cell
    """

    settings: dict[str, Any]
    cells: tuple[Cell, ...]

    def save(self, folder: Path) -> list[Path]:
        """Write ``position.json``, ``position.csv`` and ``position.png``.

        Parameters
        ----------
        folder : Path

        Returns
        -------
        list of Path
        """
        rows = [asdict(cell) for cell in self.cells]
        table = io.StringIO()
        writer = csv.DictWriter(table, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        files = {
            "position.json": (json.dumps({"settings": self.settings, "cells": rows}, indent=1) + "\n").encode(),
            "position.csv": table.getvalue().encode(),
            "position.png": self.draw(),
        }
        return write_files(folder, files)

    def to_markdown(self) -> str:
        """Return a table of the mean reciprocal rank by system and length, and depth."""
        depths = sorted({cell.depth for cell in self.cells})
        lines = ["| system | scored by | tokens | " + " | ".join(f"{depth:.0%}" for depth in depths) + " |"]
        lines += ["| --- | --- | ---: |" + " ---: |" * len(depths)]
        for system, scoring in self._maps():
            lengths, _, values = self.grid(system, scoring)
            lines += [
                f"| {system} | {scoring} | {length:,} | " + " | ".join(f"{value:.2f}" for value in row) + " |"
                for length, row in zip(lengths, values, strict=True)
            ]
        return "\n".join(lines) + "\n"

    def _maps(self) -> list[tuple[str, str]]:
        return list(dict.fromkeys((cell.system, cell.scoring) for cell in self.cells))

    def grid(self, system: str, scoring: str) -> tuple[list[int], list[float], NDArray[np.float64]]:
        """Return lengths, depths, and the mean reciprocal rank, shape (lengths, depths)."""
        found = {(c.length, c.depth): c.mrr for c in self.cells if (c.system, c.scoring) == (system, scoring)}
        lengths = sorted({length for length, _ in found})
        depths = sorted({depth for _, depth in found})
        return lengths, depths, np.array([[found[length, depth] for depth in depths] for length in lengths])

    def draw(self) -> bytes:
        """Draw a heat map for each system and scoring; returns a PNG image."""
        try:
            from matplotlib.figure import Figure
        except ImportError as error:
            raise missing_extra("matplotlib", "eval") from error

        maps = self._maps()
        n_columns = len(SCORINGS)
        n_rows = -(-len(maps) // n_columns)
        figure = Figure(figsize=(4.6 * n_columns, 0.9 + 2.4 * n_rows), layout="constrained")
        panels = figure.subplots(n_rows, n_columns, squeeze=False)
        for axes, (system, scoring) in zip(panels.flat, maps, strict=True):
            lengths, depths, values = self.grid(system, scoring)
            image = axes.imshow(values, vmin=0, vmax=1, cmap="viridis", aspect="auto", origin="lower")
            axes.set_xticks(range(len(depths)), [f"{depth:.0%}" for depth in depths], fontsize=8)
            axes.set_yticks(range(len(lengths)), [f"{length:,}" for length in lengths], fontsize=8)
            axes.set_title(f"{system}, {scoring}", fontsize=9)
            for (row, column), value in np.ndenumerate(values):
                color = "white" if value < 0.6 else "black"
                axes.text(column, row, f"{value:.2f}", ha="center", va="center", fontsize=7, color=color)
        figure.supxlabel("depth of the answer in the document", fontsize=9)
        figure.supylabel("tokens of each document", fontsize=9)
        figure.colorbar(image, ax=panels, label="mean reciprocal rank", fraction=0.03)
        drawn = io.BytesIO()
        figure.savefig(drawn, format="png", dpi=150)
        return drawn.getvalue()


def position_bias(
    systems: Sequence[System],
    count: Count,
    *,
    lengths: Sequence[int] = LENGTHS,
    depths: int = 5,
    candidates: int = 10,
    seed: int = 0,
    texts: Sequence[str] | None = None,
    cache_folder: Path | None = None,
    settings: dict[str, Any] | None = None,
    show_progress: bool = True,
) -> PositionReport:
    """Hide answers at several depths of documents of several lengths, and rank the documents.

    Parameters
    ----------
    systems : sequence of System
    count : callable
        Counts the tokens of a text, as the model does.
    lengths : sequence of int
        Tokens of the documents.
    depths : int
        How many, evenly from the beginning to the end.
    candidates : int
        Documents to rank for each question; all have an answer to another question at the same depth.
    seed : int
    texts : sequence of str, optional
        To hide answers in; by default generated sentences.
    cache_folder : Path, optional
        Where vectors are kept, so that a run that was interrupted goes on from there.
    settings : dict, optional
        Further settings that the report is to mention.
    show_progress : bool

    Returns
    -------
    PositionReport

    Raises
    ------
    ConfigError
        If a number is out of range.
    """
    haystack = Haystack.generated(count, seed) if texts is None else Haystack.of(texts, count, seed)
    cache = VectorCache(cache_folder)
    places = [(length, float(depth)) for length in lengths for depth in np.linspace(0, 1, depths)]
    sets = [
        needle_set(haystack, count, n_tokens=length, depth=depth, candidates=candidates, seed=seed)
        for length, depth in places
    ]
    cells = []
    for system in systems:
        for (length, depth), dataset in zip(places, sets, strict=True):
            for scoring, ranks in _ranks(dataset, system, cache, show_progress=show_progress).items():
                cells.append(
                    Cell(
                        system.name,
                        scoring,
                        length,
                        round(depth, 4),
                        float(ranks.mean()),
                        float((1 / ranks).mean()),
                        float((ranks == 1).mean()),
                    )
                )
    asked = {"lengths": list(lengths), "depths": depths, "candidates": candidates, "seed": seed}
    haystacks = {"haystack": "generated" if texts is None else f"{len(texts)} texts"}
    return PositionReport({**(settings or {}), **asked, **haystacks}, tuple(cells))


def _ranks(
    dataset: Dataset, system: System, cache: VectorCache, *, show_progress: bool
) -> dict[str, NDArray[np.int64]]:
    """Return the rank of each question's own document; one that scores the same as it comes before it."""
    vectors, queries = encode(dataset, system, cache, show_progress=show_progress)
    scores: dict[str, Matrix] = {
        SCORINGS[0]: best_of(queries @ vectors.chunks.T, vectors.counts),
        SCORINGS[1]: queries @ vectors.documents.T,
    }
    return {name: (found >= np.diagonal(found)[:, None]).sum(axis=1) for name, found in scores.items()}
