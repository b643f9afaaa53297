"""The training loop: transformers' Trainer, with targets from a teacher."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from tqdm import tqdm
from transformers import PrinterCallback, ProgressCallback, Trainer, TrainerCallback, TrainingArguments

from lmk_embed.backends.torch import TorchBackend, quiet, segment_means
from lmk_embed.encoder import LandmarkEncoder
from lmk_embed.loading import Parts
from lmk_embed.training.losses import distillation_loss
from lmk_embed.training.record import write_curve
from lmk_embed.training.sampling import Batch, Recipe, Sampler
from lmk_embed.training.teacher import Targets

if TYPE_CHECKING:
    from lmk_embed.evaluation import Dataset
    from lmk_embed.training.distill import Schedule

_LOG_STEPS = 20
_STATE = "trainer_state.json"


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """Everything a run is made of."""

    student: Parts
    sampler: Sampler
    targets: Targets
    recipe: Recipe
    schedule: Schedule
    folder: Path
    autocast: bool
    datasets: tuple[Dataset, ...]
    show_progress: bool


@dataclass(frozen=True, slots=True)
class Result:
    """Where a run has got to."""

    finished: bool
    step: int
    tokens: int
    history: list[dict[str, Any]]
    scores: dict[str, float]


def train(run: Run) -> Result:
    """Train from the last checkpoint on, or from the start."""
    backend = run.student.backend
    assert isinstance(backend, TorchBackend)
    stop = _Stop()
    schedule = run.schedule
    arguments = TrainingArguments(
        output_dir=str(run.folder / "checkpoints"),
        num_train_epochs=schedule.epochs,
        per_device_train_batch_size=1,
        learning_rate=schedule.learning_rate,
        lr_scheduler_type="linear",
        warmup_steps=schedule.warmup_steps,
        weight_decay=schedule.weight_decay,
        max_grad_norm=schedule.max_grad_norm,
        seed=schedule.seed,
        data_seed=schedule.seed,
        bf16=run.autocast,
        use_cpu=backend.device.type == "cpu",
        logging_steps=_LOG_STEPS,
        logging_nan_inf_filter=False,
        save_strategy="steps",
        save_steps=schedule.save_steps,
        save_total_limit=2,
        eval_strategy="steps" if run.datasets else "no",
        eval_steps=schedule.save_steps,
        load_best_model_at_end=bool(run.datasets),
        metric_for_best_model="eval_score" if run.datasets else None,
        greater_is_better=True if run.datasets else None,
        remove_unused_columns=False,
        ddp_find_unused_parameters=True,  # a pooling head, which is not used
        report_to=[],
        disable_tqdm=True,
        log_level="error",
    )
    trainer = _DistillTrainer(run, backend, arguments, stop)
    with stop.listening(), quiet():
        trainer.train(resume_from_checkpoint=_last_checkpoint(run.folder / "checkpoints"))
    state = trainer.state
    return Result(
        finished=not stop.requested,
        step=state.global_step,
        tokens=int(state.num_input_tokens_seen),
        history=list(state.log_history),
        scores=_best_scores(state.log_history, state.best_global_step),
    )


class _Draws(torch.utils.data.Dataset[Batch]):
    """Batches by number."""

    def __init__(self, sampler: Sampler, count: int) -> None:
        self._sampler = sampler
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, number: int) -> Batch:
        return self._sampler.batch(number)


def _only(batches: Sequence[Batch]) -> dict[str, Batch]:
    """Hand a batch through: it is one already."""
    (batch,) = batches
    return {"batch": batch}


class _DistillTrainer(Trainer):
    """Asks the teacher for the targets of each batch, and evaluates the student as its users will use it."""

    def __init__(self, run: Run, backend: TorchBackend, arguments: TrainingArguments, stop: _Stop) -> None:
        self._run = run
        self._backend = backend
        self._terms: dict[str, list[float]] = {}
        self._tokens = 0
        self._started = time.monotonic()
        super().__init__(
            model=backend.model(),
            args=arguments,
            train_dataset=_Draws(run.sampler, run.schedule.steps),
            eval_dataset=list(run.datasets) or None,
            data_collator=_only,
            callbacks=[_Record(run, stop)],
        )
        self.remove_callback(PrinterCallback)
        self.remove_callback(ProgressCallback)

    def compute_loss(self, model: Any, inputs: dict[str, Any], *_: Any, **__: Any) -> torch.Tensor:
        batch: Batch = inputs["batch"]
        rows = batch.rows("landmark")
        targets = torch.from_numpy(self._run.targets.of(batch))
        model.eval()  # no dropout: targets are exact, and noise only blurs what is learnt from them
        hidden = model(**self._backend.inputs(rows)).last_hidden_state
        states = segment_means(hidden.float(), rows)
        parts = distillation_loss(states, targets.to(states.device), self._run.recipe, batch.answers)
        self.state.num_input_tokens_seen += sum(map(len, rows))
        for name in ("cosine", "similarity", "norm", "answer"):
            if (value := getattr(parts, name)) is not None:
                self._terms.setdefault(name, []).append(value.item())
        return parts.total

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Add the terms of the loss since the last log."""
        if "loss" in logs:
            logs |= {name: float(np.mean(values)) for name, values in self._terms.items()}
            self._terms.clear()
            logs["tokens"] = int(self.state.num_input_tokens_seen)
            logs["seconds"] = round(time.monotonic() - self._started, 1)
        super().log(logs, start_time)

    def evaluate(self, *_: Any, **__: Any) -> dict[str, float]:
        """Score the student on the data sets: the first metric of each, and their mean."""
        student = self._run.student
        self._backend.model().eval()
        encoder = LandmarkEncoder(
            self._backend, student.tokenizer, student.config, max_positions=student.max_positions
        )
        scores = {f"eval_{dataset.name}": headline(encoder, dataset) for dataset in self._run.datasets}
        scores["eval_score"] = float(np.mean(list(scores.values())))
        self.log(scores)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, scores)
        return scores


def headline(encoder: LandmarkEncoder, dataset: Dataset) -> float:
    """Return a model's recall of gold characters, or its nDCG@10 by the best chunk where there are none."""
    from lmk_embed.evaluation import Cutoffs, EncoderEmbedder, score

    embedder = EncoderEmbedder("landmark", encoder)
    vectors = embedder.encode_documents(list(dataset.documents.values()))
    queries = embedder.encode_queries(list(dataset.queries.values()))
    cutoffs = Cutoffs()
    first = score(dataset, vectors, queries, cutoffs)[0]
    return float(first.values[cutoffs.metrics(first.group)[0]].mean())


@dataclass(slots=True)
class _Stop:
    """Turns the first Ctrl-C into an orderly end after the current step; the second one ends at once."""

    requested: bool = False
    _before: Any = field(default=None)

    @contextmanager
    def listening(self) -> Iterator[None]:
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


class _Record(TrainerCallback):
    """Progress bar, loss curve and orderly end."""

    def __init__(self, run: Run, stop: _Stop) -> None:
        self._run = run
        self._stop = stop
        self._bar: tqdm[Any] | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        disable = None if self._run.show_progress else True
        self._bar = tqdm(total=state.max_steps, initial=state.global_step, unit="step", disable=disable)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self._bar is not None:
            self._bar.update(state.global_step - self._bar.n)
        if self._stop.requested:
            control.should_save = control.should_training_stop = True
        elif state.global_step >= state.max_steps and self._run.datasets:
            control.should_evaluate = True

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **_: Any) -> None:
        if self._bar is not None and logs and "loss" in logs:
            self._bar.set_postfix(loss=f"{logs['loss']:.4f}", cosine=f"{logs.get('cosine', 0):.4f}")
        write_curve(state.log_history, self._run.folder)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self._bar is not None:
            self._bar.close()


def _last_checkpoint(folder: Path) -> str | None:
    """Return the newest checkpoint that is complete; what a killed run left half-written is passed over."""
    found = sorted(folder.glob("checkpoint-*"), key=lambda path: int(path.name.rpartition("-")[2]), reverse=True)
    for path in found:
        try:
            # The trainer writes its state last.
            json.loads((path / _STATE).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        return str(path)
    return None


def _best_scores(history: Sequence[dict[str, Any]], best_step: int | None) -> dict[str, float]:
    """Return the scores by data set of the checkpoint that was kept."""
    for entry in reversed(history):
        if "eval_score" in entry and best_step in (None, entry["step"]):
            return {
                name.removeprefix("eval_"): float(value)
                for name, value in entry.items()
                if name.startswith("eval_") and name != "eval_score"
            }
    return {}
