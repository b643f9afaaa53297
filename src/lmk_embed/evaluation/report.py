"""What an evaluation found: as values, as JSON and as Markdown."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from lmk_embed.evaluation.bootstrap import Estimate

#: Bumped when the meaning or place of something in the JSON changes.
FORMAT = 1

#: Heads of the columns in tables and plots; what stands behind "@" is kept.
_HEADS = {"recall": "recall", "mrr": "MRR", "iou": "IoU", "precision": "precision", "ndcg": "nDCG"}
_WAYS = {"spans": "spans", "best_chunk": "best chunk", "document_vector": "document vector"}


@dataclass(frozen=True, slots=True)
class Outcome:
    """One metric of one system.

    Attributes
    ----------
    score : Estimate
    difference : Estimate or None
        To the baseline, over the same queries; None for the baseline itself.
    """

    score: Estimate
    difference: Estimate | None

    @property
    def verdict(self) -> int:
        """1 if the interval of the difference is above zero, -1 if below, else 0."""
        if self.difference is None:
            return 0
        return int(self.difference.low > 0) - int(self.difference.high < 0)


@dataclass(frozen=True, slots=True)
class SystemResult:
    """One system on one data set.

    Attributes
    ----------
    system : str
    chunks : int
    mean_chars : float
        Characters of a chunk.
    cut_documents : int
        Documents of which some text is in no vector.
    seconds : float
        To cut and encode the documents, when they were encoded.
    outcomes : dict of str to Outcome
        By metric.
    """

    system: str
    chunks: int
    mean_chars: float
    cut_documents: int
    seconds: float
    outcomes: dict[str, Outcome]


@dataclass(frozen=True, slots=True)
class DatasetResult:
    """All systems on one data set.

    Attributes
    ----------
    dataset : str
    content_hash : str
    documents : int
    queries : dict of str to int
        By group of metrics: how many queries count.
    systems : tuple of SystemResult
    """

    dataset: str
    content_hash: str
    documents: int
    queries: dict[str, int]
    systems: tuple[SystemResult, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that was measured, and what is needed to measure it again.

    Attributes
    ----------
    created : str
        ISO 8601, UTC.
    settings : dict
    environment : dict
        Versions, device, threads.
    systems : tuple of dict
        Name, model, fingerprint and settings of each.
    baseline : str
        The system that differences are to.
    metrics : tuple of str
        In the order of the tables.
    datasets : tuple of DatasetResult
    means : dict of str to dict of str to Outcome
        By system and metric: the mean over the data sets that have the metric, each counting alike.
    """

    created: str
    settings: dict[str, Any]
    environment: dict[str, Any]
    systems: tuple[dict[str, Any], ...]
    baseline: str
    metrics: tuple[str, ...]
    datasets: tuple[DatasetResult, ...]
    means: dict[str, dict[str, Outcome]]

    def to_json(self) -> str:
        """Return everything as JSON."""
        values = {"format": FORMAT, **asdict(self)}
        return json.dumps(_named(self, values), indent=2, ensure_ascii=False) + "\n"

    def to_markdown(self) -> str:
        """Return tables: the means over data sets if there are several, then each data set."""
        parts = [_head(self)]
        if len(self.datasets) > 1:
            rows = [(name, outcomes) for name, outcomes in self.means.items()]
            parts += [f"## Mean over {len(self.datasets)} data sets", *_tables(self.metrics, rows)]
        for result in self.datasets:
            queries = ", ".join(f"{count} with {_JUDGED[group]}" for group, count in result.queries.items())
            parts += [f"## {result.dataset}", f"{result.documents} documents; queries: {queries}."]
            parts += _tables(self.metrics, [(found.system, found.outcomes) for found in result.systems])
            parts.append(_sizes(result))
        return "\n\n".join(parts) + "\n"

    def save(self, folder: Path) -> list[Path]:
        """Write ``report.json``, ``report.md`` and the plots.

        Parameters
        ----------
        folder : Path
            Created if need be; files of these names are replaced.

        Returns
        -------
        list of Path

        Raises
        ------
        MissingExtraError
            If matplotlib is not installed.
        """
        from lmk_embed.evaluation.plots import draw

        texts = {"report.json": self.to_json().encode(), "report.md": self.to_markdown().encode()}
        return write_files(folder, texts | draw(self))


_JUDGED = {"spans": "gold spans", "documents": "relevant documents"}


def write_files(folder: Path, files: Mapping[str, bytes]) -> list[Path]:
    """Write files into a folder, which is created if need be; each completely or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        write_atomically(folder / name, content)
    return [folder / name for name in files]


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file completely or not at all."""
    scratch = path.with_name(f".{path.name}-{uuid4().hex}")
    try:
        scratch.write_bytes(content)
        scratch.replace(path)
    finally:
        scratch.unlink(missing_ok=True)


def _named(report: Report, values: dict[str, Any]) -> dict[str, Any]:
    """Give estimates their names back: ``asdict`` keeps named tuples, which JSON knows as lists only."""

    def outcome(found: Outcome) -> dict[str, Any]:
        difference = None if found.difference is None else found.difference._asdict()
        return {**found.score._asdict(), "difference": difference}

    for written, result in zip(values["datasets"], report.datasets, strict=True):
        for row, found in zip(written["systems"], result.systems, strict=True):
            row["outcomes"] = {metric: outcome(value) for metric, value in found.outcomes.items()}
    values["means"] = {
        system: {metric: outcome(value) for metric, value in outcomes.items()}
        for system, outcomes in report.means.items()
    }
    return values


def metric_label(metric: str) -> str:
    """Return the head of a metric's column.

    Examples
    --------
    >>> metric_label("best_chunk.ndcg@10"), metric_label("spans.recall@3000chars")
    ('nDCG@10 best chunk', 'recall in 3,000 characters')
    """
    way, _, name = metric.partition(".")
    measure, _, at = name.partition("@")
    if at.endswith("chars"):
        return f"{_HEADS[measure]} in {int(at.removesuffix('chars')):,} characters"
    return f"{_HEADS[measure]}@{at} {_WAYS[way]}".strip()


def _head(report: Report) -> str:
    settings = report.settings
    return (
        "# Evaluation\n\n"
        f"Means over queries with {settings['confidence']:.0%} bootstrap intervals "
        f"({settings['resamples']} resamples, seed {settings['seed']}). **Bold**: better than "
        f"{report.baseline}, *italic*: worse, by an interval of the paired difference that leaves out zero."
    )


def _tables(metrics: Sequence[str], rows: Sequence[tuple[str, dict[str, Outcome]]]) -> list[str]:
    present = [metric for metric in metrics if any(metric in outcomes for _, outcomes in rows)]
    spans = [metric for metric in present if metric.startswith("spans.")]
    documents = [metric for metric in present if not metric.startswith("spans.")]
    return [_table(columns, rows) for columns in (spans, documents) if columns]


def _table(metrics: Sequence[str], rows: Sequence[tuple[str, dict[str, Outcome]]]) -> str:
    head = ["system", *map(metric_label, metrics)]
    body = [[name, *(_cell(outcomes.get(metric)) for metric in metrics)] for name, outcomes in rows]
    return markdown_table(head, body)


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table whose first column is aligned left, the others right."""
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _cell(outcome: Outcome | None) -> str:
    if outcome is None:
        return ""
    mean, low, high = (_short(value) for value in outcome.score)
    mark = {1: "**", 0: "", -1: "*"}[outcome.verdict]
    return f"{mark}{mean}{mark} ({low}–{high})"  # noqa: RUF001


def _short(value: float) -> str:
    return f"{value:.3f}".removeprefix("0")


def _sizes(result: DatasetResult) -> str:
    head = ["system", "chunks", "characters per chunk", "documents cut", "seconds to encode"]
    rows = [
        [s.system, f"{s.chunks:,}", f"{s.mean_chars:.0f}", str(s.cut_documents), f"{s.seconds:.1f}"]
        for s in result.systems
    ]
    return markdown_table(head, rows)
