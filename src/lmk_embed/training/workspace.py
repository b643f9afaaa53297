"""The folder of a run: its settings while it trains, and the finished model in one piece."""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lmk_embed.errors import ConfigError
from lmk_embed.training.corpus import Facts

#: Subfolder for checkpoints, the loss curve and caches.
WORK = "training"
_SETTINGS = "settings.json"


def claim(out: Path, settings: dict[str, Any]) -> None:
    """Begin a run in a folder, or make sure that the run in it is this one.

    Parameters
    ----------
    out : Path
    settings : dict
        Everything that changes what is trained; as JSON has it.

    Raises
    ------
    ConfigError
        If the folder holds something else; nothing in it has been touched.
    """
    path = out / WORK / _SETTINGS
    settings = json.loads(json.dumps(settings))
    if out.exists() and not out.is_dir():
        raise ConfigError(f"{out} is a file; give a folder")
    if path.exists():
        before = json.loads(path.read_text(encoding="utf-8"))
        changed = [
            f"{name}: {before.get(name)} before, {value} now"
            for name, value in settings.items()
            if before.get(name) != value
        ]
        if changed:
            raise ConfigError(
                f"{out} holds a run with other settings ({'; '.join(changed)}); give another folder, or delete "
                "this one to start again"
            )
        return
    if out.exists() and any(out.iterdir()):
        raise ConfigError(f"{out} is not empty and holds no run to go on with; give another folder")
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
    part.replace(path)


def publish(out: Path, write: Callable[[Path], None]) -> None:
    """Put a finished model in its place: ``config.json``, without which it is none, comes last.

    Parameters
    ----------
    out : Path
    write : callable
        Given the folder to fill.
    """
    scratch = out / WORK / "model"
    shutil.rmtree(scratch, ignore_errors=True)
    write(scratch)
    for path in sorted(scratch.iterdir(), key=lambda path: path.name == "config.json"):
        path.replace(out / path.name)
    shutil.rmtree(scratch)


def report_problems(facts: Facts) -> None:
    """Warn of rows that are not trained on, with their number and the first of them."""
    if count := facts.problems.total():
        kinds = ", ".join(f"{number} {problem}" for problem, number in facts.problems.most_common())
        warnings.warn(
            f"{count} rows or files are not trained on ({kinds}); the first: {facts.examples[0]}",
            stacklevel=3,
        )
