"""What a run leaves behind: its loss curve, and the card of the model."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lmk_embed.training.corpus import Facts

_SCHEDULE = ("seed", "steps", "epochs", "batch_size", "learning_rate")
_COLUMNS = (
    "step",
    "tokens",
    "loss",
    "cosine",
    "similarity",
    "norm",
    "answer",
    "learning_rate",
    "grad_norm",
    "seconds",
)


def write_curve(history: Sequence[dict[str, Any]], folder: Path) -> None:
    """Write ``loss.csv``, ``scores.csv`` and ``loss.png``.

    Parameters
    ----------
    history : sequence of dict
        The trainer's log.
    folder : Path
    """
    losses = [entry for entry in history if "loss" in entry]
    scores = [entry for entry in history if "eval_score" in entry]
    _write_table(folder / "loss.csv", _COLUMNS, losses)
    if scores:
        names = sorted({name for entry in scores for name in entry if name.startswith("eval_")})
        _write_table(folder / "scores.csv", ("step", *names), scores)
    if losses:
        _plot(losses, scores, folder / "loss.png")


def _write_table(path: Path, columns: Sequence[str], entries: Sequence[dict[str, Any]]) -> None:
    text = io.StringIO()
    table = csv.DictWriter(text, columns, extrasaction="ignore", lineterminator="\n")
    table.writeheader()
    table.writerows(entries)
    part = path.with_suffix(".part")
    part.write_text(text.getvalue(), encoding="utf-8")
    part.replace(path)


def _plot(losses: Sequence[dict[str, Any]], scores: Sequence[dict[str, Any]], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    left = figure.add_subplot()
    for name in ("cosine", "similarity", "answer"):
        points = [(entry["step"], entry[name]) for entry in losses if name in entry]
        if not points:
            continue
        left.plot(*zip(*points, strict=True), label={"cosine": "1 - cosine"}.get(name, name), linewidth=1)
    left.set(xlabel="step", ylabel="loss", yscale="log")
    lines, labels = left.get_legend_handles_labels()
    if scores:
        right = left.twinx()
        right.plot([e["step"] for e in scores], [e["eval_score"] for e in scores], "k.--", label="score")
        right.set_ylabel("mean score on the data sets")
        more = right.get_legend_handles_labels()
        lines, labels = lines + more[0], labels + more[1]
    left.legend(lines, labels)
    part = path.with_suffix(".part")
    figure.savefig(part, dpi=120, format="png")
    part.replace(path)


@dataclass(frozen=True, slots=True, eq=False)
class Card:
    """What the model card says.

    Attributes
    ----------
    command : str
        That made it; empty if it was not made by one.
    settings : dict
        Of the run.
        ``base``, ``init`` and ``schedule`` among them.
    facts : dict of str to Facts
        What was read, by a heading.
    history : list of dict
        The trainer's log.
    scores : dict of str to float
    """

    command: str
    settings: dict[str, Any]
    facts: dict[str, Facts]
    history: list[dict[str, Any]]
    scores: dict[str, float]


def write_card(card: Card, folder: Path) -> None:
    """Write ``README.md`` and ``training_log.csv`` into a model folder.

    Parameters
    ----------
    card : Card
    folder : Path
    """
    losses = [entry for entry in card.history if "loss" in entry]
    _write_table(folder / "training_log.csv", _COLUMNS, losses)
    settings = card.settings
    schedule = settings["schedule"]
    lines = [
        "# Landmark model",
        "",
        f"Trained from `{settings['base']}`"
        + (f", starting from `{settings['init']}`." if settings["init"] else "."),
        "",
        "```python",
        "from lmk_embed import LandmarkEncoder",
        'encoder = LandmarkEncoder.from_pretrained("path/of/this/folder")',
        "```",
        "",
    ]
    if card.command:
        lines += ["Made by", "", "```", card.command, "```", ""]
    said = ", ".join(f"{name.replace('_', ' ')} {schedule[name]}" for name in _SCHEDULE if name in schedule)
    if losses and "tokens" in losses[-1]:
        said += f", {losses[-1]['tokens']:,} tokens read"
    lines += [said[:1].upper() + said[1:] + "."]
    if losses:
        name = "cosine" if "cosine" in losses[0] else "loss"
        lines += [
            f"{'1 - cosine to the target' if name == 'cosine' else 'Loss'}: {losses[0][name]:.3f} in the first "
            f"steps, {losses[-1][name]:.3f} in the last; every {losses[0]['step']} steps in `training_log.csv`."
        ]
    for title, facts in card.facts.items():
        lines += ["", f"## {title}", "", *_sources(facts)]
    if card.scores:
        lines += ["", "## Scores while training", "", "| data set | score |", "|---|---|"]
        lines += [f"| {name} | {value:.3f} |" for name, value in sorted(card.scores.items())]
    lines += ["", "## Settings", "", "```json", json.dumps(settings, indent=2), "```", ""]
    (folder / "README.md").write_text("\n".join(lines), encoding="utf-8")


def _sources(facts: Facts) -> list[str]:
    lines = ["| source | texts |", "|---|---|"]
    lines += [f"| {name} | {count} |" for name, count in sorted(facts.sources.items())]
    if facts.problems:
        lines += ["", "Not trained on, because they cannot be used:", ""]
        lines += [f"- {count}: {problem}" for problem, count in facts.problems.most_common()]
    return lines
