"""What all runs share: an orderly end, progress, a loss curve, and no step on a loss that is no number."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from tqdm import tqdm
from transformers import Trainer, TrainerCallback

from lmk_embed.errors import LandmarkError
from lmk_embed.training.record import write_curve

_STATE = "trainer_state.json"


class LossError(LandmarkError, ArithmeticError):
    """The loss is infinite or not a number; the last checkpoint is from before that."""


def finite(loss: torch.Tensor, trainer: Trainer) -> torch.Tensor:
    """Return the loss, if weights may learn from it.

    Parameters
    ----------
    loss : Tensor
        A scalar.
    trainer : transformers.Trainer

    Raises
    ------
    LossError
        If it is infinite or not a number. Weights are those from before this step.
    """
    if bool(torch.isfinite(loss.detach()).all()):
        return loss
    kept = last_checkpoint(Path(str(trainer.args.output_dir)))
    raise LossError(
        f"the loss is {loss.item()} at step {trainer.state.global_step + 1}; "
        + (f"the last good checkpoint is {kept}" if kept else "there is no checkpoint from before it")
        + f". Use a lower learning rate than {trainer.args.learning_rate:g}"
        + (", or float32." if trainer.args.bf16 or trainer.args.fp16 else ".")
    )


@dataclass(slots=True)
class Stop:
    """Turns the first Ctrl-C into an orderly end after the current step; the second one ends at once.

    Attributes
    ----------
    requested : bool
    """

    requested: bool = False

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Listen to SIGINT and SIGTERM, in the main thread."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self._request) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _request(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            signal.default_int_handler(number, frame)
        self.requested = True


class Progress(TrainerCallback):
    """Progress bar, loss curve and orderly end.

    Parameters
    ----------
    folder : Path
        For the loss curve.
    stop : Stop
    evaluate : bool
        Whether to evaluate after the last step.
    show : bool
        Whether to show a progress bar, on a terminal.
    """

    def __init__(self, folder: Path, stop: Stop, *, evaluate: bool, show: bool) -> None:
        self._folder = folder
        self._stop = stop
        self._evaluate = evaluate
        self._show = show
        self._bar: tqdm[Any] | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Open the progress bar where the run begins."""
        disable = None if self._show and state.is_world_process_zero else True
        self._bar = tqdm(total=state.max_steps, initial=state.global_step, unit="step", disable=disable)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Move the bar on, and end the run if that was asked for."""
        if self._bar is not None:
            self._bar.update(state.global_step - self._bar.n)
        if self._stop.requested:
            control.should_save = control.should_training_stop = True
        elif state.global_step >= state.max_steps and self._evaluate:
            control.should_evaluate = True

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **_: Any) -> None:
        """Show the loss and write the curve."""
        if not state.is_world_process_zero:
            return
        if self._bar is not None and logs and "loss" in logs:
            shown = {name: f"{float(logs[name]):.4f}" for name in ("loss", "cosine") if name in logs}
            self._bar.set_postfix(shown)
        write_curve(state.log_history, self._folder)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Close the bar."""
        if self._bar is not None:
            self._bar.close()


def history_of(checkpoint: str | None) -> list[dict[str, Any]]:
    """Return the log of the run up to a checkpoint.

    Parameters
    ----------
    checkpoint : str or None
        As :func:`last_checkpoint` returns it.
    """
    if checkpoint is None:
        return []
    state: dict[str, Any] = json.loads((Path(checkpoint) / _STATE).read_text(encoding="utf-8"))
    return [*state["log_history"], {"step": state["global_step"]}]


def last_checkpoint(folder: Path) -> str | None:
    """Return the newest checkpoint that is complete; what a killed run left half-written is passed over.

    Parameters
    ----------
    folder : Path
    """
    found = sorted(folder.glob("checkpoint-*"), key=lambda path: int(path.name.rpartition("-")[2]), reverse=True)
    for path in found:
        try:
            # The trainer writes its state last.
            json.loads((path / _STATE).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        return str(path)
    return None
