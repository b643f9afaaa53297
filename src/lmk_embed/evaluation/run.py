"""Systems on data sets: encode, score, and compare with a baseline query by query."""

from __future__ import annotations

import os
import platform
import zlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from lmk_embed.errors import ConfigError
from lmk_embed.evaluation.bootstrap import Estimate, interval, resampled_means
from lmk_embed.evaluation.cache import VectorCache
from lmk_embed.evaluation.data import Dataset
from lmk_embed.evaluation.report import DatasetResult, Outcome, Report, SystemResult
from lmk_embed.evaluation.scoring import Cutoffs, Scores, score
from lmk_embed.evaluation.systems import System
from lmk_embed.evaluation.vectors import CorpusVectors

Floats = NDArray[np.float64]

_PACKAGES = (
    "lmk-embed",
    "torch",
    "transformers",
    "tokenizers",
    "numpy",
    "sentence-transformers",
    "langchain-text-splitters",
    "ir-measures",
    "pytrec-eval-terrier",
)


@dataclass(frozen=True, slots=True)
class Statistics:
    """How sure a mean is.

    Attributes
    ----------
    resamples : int
        Of the bootstrap.
    confidence : float
        Of the intervals.
    seed : int
        Of the bootstrap.

    Raises
    ------
    ConfigError
        If a value is out of range.
    """

    resamples: int = 1000
    confidence: float = 0.95
    seed: int = 0

    def __post_init__(self) -> None:
        """Check the numbers where they enter."""
        if self.resamples < 1:
            raise ConfigError(f"resamples must be at least 1, got {self.resamples}")
        if not 0 < self.confidence < 1:
            raise ConfigError(f"confidence must lie between 0 and 1, got {self.confidence}")
        if self.seed < 0:
            raise ConfigError(f"seed must be at least 0, got {self.seed}")


@dataclass(slots=True)
class _Measured:
    """A data set, and for each system its facts and scores."""

    dataset: Dataset
    facts: dict[str, dict[str, Any]] = field(default_factory=dict)
    scores: dict[str, list[Scores]] = field(default_factory=dict)


def evaluate(
    datasets: Sequence[Dataset],
    systems: Sequence[System],
    cache_folder: Path | None = None,
    *,
    baseline: str | None = None,
    cutoffs: Cutoffs | None = None,
    statistics: Statistics | None = None,
    settings: dict[str, Any] | None = None,
    show_progress: bool = True,
) -> Report:
    """Compare systems on data sets.

    Parameters
    ----------
    datasets : sequence of Dataset
        Their names must differ.
    systems : sequence of System
        Their names must differ.
    cache_folder : Path, optional
        Where vectors are kept, so that a run that was interrupted goes on from there; by default nowhere.
    baseline : str, optional
        Name of the system that differences are to; by default the first of the usual way
        (``split-and-embed…``), else the first.
    cutoffs : Cutoffs, optional
    statistics : Statistics, optional
    settings : dict, optional
        Further settings that the report is to mention.
    show_progress : bool
        Show progress bars on standard error if it is a terminal.

    Returns
    -------
    Report

    Raises
    ------
    ConfigError
        If names are not unique, or the baseline is not among the systems.
    """
    cutoffs, statistics = cutoffs or Cutoffs(), statistics or Statistics()
    names = [system.name for system in systems]
    _check_unique("data set", [dataset.name for dataset in datasets])
    _check_unique("system", names)
    baseline = _baseline(names, baseline)
    cache = VectorCache(cache_folder)
    measured = [_Measured(dataset) for dataset in datasets]
    described = []
    for system in systems:
        for entry in measured:
            vectors, queries = encode(entry.dataset, system, cache, show_progress=show_progress)
            entry.facts[system.name] = _facts(vectors)
            entry.scores[system.name] = score(entry.dataset, vectors, queries, cutoffs)
        described.append(
            {
                "name": system.name,
                "model": system.model,
                "fingerprint": system.embedder.fingerprint,
                "settings": system.settings(),
            }
        )
    results, means = _compare(measured, baseline, statistics)
    return Report(
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        settings={**(settings or {}), **asdict(cutoffs), **asdict(statistics)},
        environment=_environment(),
        systems=tuple(described),
        baseline=baseline,
        metrics=(*cutoffs.metrics("spans"), *cutoffs.metrics("documents")),
        datasets=results,
        means=means,
    )


def _check_unique(kind: str, names: Sequence[str]) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if not names or twice:
        problem = f"{kind} {twice[0]!r} is given twice" if twice else f"no {kind} given"
        raise ConfigError(f"{problem}; each needs a name of its own")


def _baseline(names: Sequence[str], wanted: str | None) -> str:
    if wanted is None:
        return next((name for name in names if name.startswith("split-and-embed")), names[0])
    if wanted not in names:
        raise ConfigError(f"the baseline {wanted!r} is not among the systems: {', '.join(names)}")
    return wanted


def encode(
    dataset: Dataset, system: System, cache: VectorCache, *, show_progress: bool
) -> tuple[CorpusVectors, NDArray[np.float32]]:
    """Return a system's vectors of a data set's documents and queries, in order.

    Parameters
    ----------
    dataset : Dataset
    system : System
    cache : VectorCache
    show_progress : bool
    """
    with tqdm(
        total=sum(map(len, dataset.documents.values())),
        desc=f"{dataset.name} {system.name}",
        unit="char",
        unit_scale=True,
        leave=False,
        disable=None if show_progress else True,
    ) as bar:
        vectors = cache.corpus(dataset, system.embedder, bar.update)
    return system.finish(vectors), cache.queries(dataset, system.embedder)


def _facts(vectors: CorpusVectors) -> dict[str, Any]:
    n = len(vectors.spans)
    return {
        "chunks": n,
        "mean_chars": float((vectors.spans[:, 1] - vectors.spans[:, 0]).mean()) if n else 0.0,
        "cut_documents": int(vectors.cut.sum()),
        "seconds": vectors.seconds,
    }


def _compare(
    measured: Sequence[_Measured], baseline: str, statistics: Statistics
) -> tuple[tuple[DatasetResult, ...], dict[str, dict[str, Outcome]]]:
    """Turn scores into estimates, for each data set and for the mean over data sets."""
    names = list(measured[0].scores)
    # For each system and metric, one (mean, resampled means) for each data set that has the metric.
    pooled: dict[tuple[str, str], list[tuple[float, Floats]]] = {}
    results = []
    for entry in measured:
        drawn = _resample(entry, statistics)
        for key, found in drawn.items():
            pooled.setdefault(key, []).append(found)
        outcomes = _outcomes(names, drawn, baseline, statistics.confidence)
        results.append(
            DatasetResult(
                dataset=entry.dataset.name,
                content_hash=entry.dataset.content_hash,
                documents=len(entry.dataset.documents),
                queries={scores.group: len(scores.queries) for scores in entry.scores[names[0]]},
                systems=tuple(
                    SystemResult(system=name, outcomes=outcomes[name], **entry.facts[name]) for name in names
                ),
            )
        )
    together = {
        key: (float(np.mean([mean for mean, _ in found])), np.mean([draws for _, draws in found], axis=0))
        for key, found in pooled.items()
    }
    return tuple(results), _outcomes(names, together, baseline, statistics.confidence)


def _resample(entry: _Measured, statistics: Statistics) -> dict[tuple[str, str], tuple[float, Floats]]:
    """Return mean and resampled means by system and metric; all systems share the draws."""
    found: dict[tuple[str, str], tuple[float, Floats]] = {}
    for index, first in enumerate(next(iter(entry.scores.values()))):
        columns = {
            (name, metric): values
            for name, groups in entry.scores.items()
            for metric, values in groups[index].values.items()
        }
        # The seed depends on the data set, so that its figures do not change with the sets beside it.
        seed = [statistics.seed, zlib.crc32(f"{entry.dataset.name} {first.group}".encode())]
        table = np.stack(list(columns.values()), axis=1)
        draws = resampled_means(table, statistics.resamples, seed)
        means = table.mean(axis=0)
        found |= {key: (float(means[at]), draws[:, at]) for at, key in enumerate(columns)}
    return found


def _outcomes(
    names: Sequence[str],
    drawn: dict[tuple[str, str], tuple[float, Floats]],
    baseline: str,
    confidence: float,
) -> dict[str, dict[str, Outcome]]:
    outcomes: dict[str, dict[str, Outcome]] = {name: {} for name in names}
    for (name, metric), (mean, draws) in drawn.items():
        difference: Estimate | None = None
        if name != baseline:
            base_mean, base_draws = drawn[baseline, metric]
            difference = interval(mean - base_mean, draws - base_draws, confidence)
        outcomes[name][metric] = Outcome(interval(mean, draws, confidence), difference)
    return outcomes


def _environment() -> dict[str, Any]:
    import torch

    packages = {}
    for name in _PACKAGES:
        with suppress(PackageNotFoundError):
            packages[name] = version(name)
    return {
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "torch_threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "packages": packages,
    }
