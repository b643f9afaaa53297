"""Bar plots with error bars, as PNG."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lmk_embed.errors import missing_extra
from lmk_embed.evaluation.report import Outcome, Report, metric_label

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Ours stands out, the baseline is darker than the rest; error bars stay visible on all of them.
_OURS, _BASELINE, _OTHER = "#d9715a", "#7d8cab", "#c9d1dc"
_COLUMNS = 3


def draw(report: Report) -> dict[str, bytes]:
    """Draw a figure for each data set, and one of the means if there are several.

    Parameters
    ----------
    report : Report

    Returns
    -------
    dict of str to bytes
        PNG images by file name.

    Raises
    ------
    MissingExtraError
        If matplotlib is not installed.
    """
    figures = {
        result.dataset: (
            f"{result.dataset}: {result.documents} documents, {max(result.queries.values())} queries",
            {found.system: found.outcomes for found in result.systems},
        )
        for result in report.datasets
    }
    if len(figures) > 1:
        figures["mean"] = (f"Mean over {len(report.datasets)} data sets", report.means)
    return {f"{_file_name(name)}.png": _figure(title, rows, report) for name, (title, rows) in figures.items()}


def _file_name(name: str) -> str:
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in name)


def _figure(title: str, rows: Mapping[str, Mapping[str, Outcome]], report: Report) -> bytes:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise missing_extra("matplotlib", "eval") from error

    metrics = [metric for metric in report.metrics if any(metric in outcomes for outcomes in rows.values())]
    n_columns = min(_COLUMNS, len(metrics))
    n_rows = -(-len(metrics) // n_columns)
    height = 0.9 + 0.27 * len(rows)
    figure = Figure(figsize=(2.4 + 3.4 * n_columns, 0.6 + height * n_rows), layout="constrained")
    grid = figure.subplots(n_rows, n_columns, squeeze=False, sharey=True)
    for axes, metric in zip(grid.flat, metrics, strict=False):
        _panel(axes, metric, rows, report)
    for axes in grid.flat[len(metrics) :]:
        axes.set_visible(False)
    confidence = report.settings["confidence"]
    figure.suptitle(
        f"{title}\n{confidence:.0%} bootstrap intervals over queries; darker bar: baseline ({report.baseline})",
        fontsize=11,
    )
    image = io.BytesIO()
    figure.savefig(image, format="png", dpi=150)
    return image.getvalue()


def _panel(axes: Axes, metric: str, rows: Mapping[str, Mapping[str, Outcome]], report: Report) -> None:
    names = [name for name in rows if metric in rows[name]]
    scores = [rows[name][metric].score for name in names]
    errors = [[s.mean - s.low for s in scores], [s.high - s.mean for s in scores]]
    bars: dict[str, Any] = {"height": 0.72, "color": [_color(name, report.baseline) for name in names]}
    axes.barh(names, [s.mean for s in scores], xerr=errors, error_kw={"elinewidth": 1, "capsize": 2}, **bars)
    reach = _reach([s.high for s in scores])
    for at, s in enumerate(scores):
        axes.text(s.high + 0.02 * reach, at, f"{s.mean:.3f}", va="center", fontsize=8)
    axes.set_xlim(0, 1.18 * reach)
    axes.set_title(metric_label(metric), fontsize=9)
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    if not axes.yaxis_inverted():
        axes.invert_yaxis()  # the first system on top; axes are shared, so only once


def _reach(highs: Sequence[float]) -> float:
    return max([*highs, 1e-3])


def _color(name: str, baseline: str) -> str:
    if name == baseline:
        return _BASELINE
    return _OURS if name.startswith("landmark") else _OTHER
