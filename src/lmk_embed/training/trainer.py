"""The training loop: transformers' Trainer, with targets from a teacher."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from transformers import PrinterCallback, ProgressCallback, Trainer, TrainingArguments

from lmk_embed.backends.torch import TorchBackend, quiet, segment_means
from lmk_embed.encoder import LandmarkEncoder
from lmk_embed.loading import Parts
from lmk_embed.training.losses import distillation_loss
from lmk_embed.training.sampling import Batch, Recipe, Sampler
from lmk_embed.training.session import Progress, Stop, finite, last_checkpoint
from lmk_embed.training.teacher import Targets

if TYPE_CHECKING:
    from lmk_embed.evaluation import Dataset
    from lmk_embed.training.distill import Schedule

_LOG_STEPS = 20


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
    stop = Stop()
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
        trainer.train(resume_from_checkpoint=last_checkpoint(run.folder / "checkpoints"))
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

    def __init__(self, run: Run, backend: TorchBackend, arguments: TrainingArguments, stop: Stop) -> None:
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
            callbacks=[Progress(run.folder, stop, evaluate=bool(run.datasets), show=run.show_progress)],
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
        return finite(parts.total, self)

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
