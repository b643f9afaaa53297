"""Label-free distillation: an encoder becomes a landmark model by imitating itself.

The student starts as a copy of the base model. It reads whole windows, with a landmark behind each chunk, and the
state at each landmark learns to be what the base model says about that chunk, alone and in its window.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lmk_embed.config import LandmarkConfig, RowPooling
from lmk_embed.encoder import LandmarkEncoder
from lmk_embed.errors import ConfigError, missing_extra
from lmk_embed.loading import Parts, load_parts
from lmk_embed.training.corpus import TextCorpus, read_corpus
from lmk_embed.training.questions import read_questions
from lmk_embed.training.record import Card, write_card, write_curve
from lmk_embed.training.sampling import Recipe, Sampler
from lmk_embed.training.teacher import Targets, Teacher
from lmk_embed.training.workspace import WORK, claim, publish, report_problems

if TYPE_CHECKING:
    from lmk_embed.evaluation import Dataset

#: Longest rows unless asked for otherwise: what inference reads has to be trained, and attention grows with it.
_ROW = 512


@dataclass(frozen=True, slots=True)
class Schedule:
    """How long and how fast to train.

    Attributes
    ----------
    steps : int
        Different batches.
    epochs : int
        How often each is used; the teacher is asked once.
    learning_rate : float
        At its peak; it falls to 0 along a line.
    warmup_steps : int
    weight_decay, max_grad_norm : float
    save_steps : int
        Steps between checkpoints to go on from, and between evaluations.
    seed : int

    Raises
    ------
    ConfigError
        If a number is out of range.
    """

    steps: int = 2000
    epochs: int = 1
    learning_rate: float = 5e-4
    warmup_steps: int = 30
    weight_decay: float = 0.01
    max_grad_norm: float = 1.0
    save_steps: int = 200
    seed: int = 0

    def __post_init__(self) -> None:
        """Check the numbers where they enter."""
        for name in ("steps", "epochs", "save_steps"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, got {getattr(self, name)}")
        for name in ("warmup_steps", "weight_decay", "seed"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} must not be negative, got {getattr(self, name)}")
        for name in ("learning_rate", "max_grad_norm"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name} must be above 0, got {getattr(self, name)}")


@dataclass(frozen=True, slots=True)
class Source:
    """Where text comes from.

    Attributes
    ----------
    texts : tuple of Path
        Long texts; see :func:`read_corpus`.
    queries : tuple of Path
        Short texts of the kind that users ask (JSON rows with ``query`` or ``text``).
    sources : tuple of str
        Patterns that the ``source`` of a row must match, in all of them.
    spans, pairs : tuple of Path
        Questions with answers, where there are any; see :func:`read_questions`.
    """

    texts: tuple[Path, ...]
    queries: tuple[Path, ...] = ()
    sources: tuple[str, ...] = ()
    spans: tuple[Path, ...] = ()
    pairs: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a call of :func:`distill` has done.

    Attributes
    ----------
    folder : Path or None
        The finished landmark model; None if training was interrupted before its end.
    step : int
    tokens : int
        Read by the student.
    scores : dict of str to float
        Of the model that was kept, by data set, if there were any to evaluate on.
    """

    folder: Path | None
    step: int
    tokens: int
    scores: dict[str, float] = field(default_factory=dict)


def distill(
    base: str | Path,
    source: Source,
    out: Path,
    *,
    init: str | Path | None = None,
    recipe: Recipe | None = None,
    schedule: Schedule | None = None,
    max_seq_length: int | None = None,
    pooling: RowPooling | None = None,
    neighbour_weight: float = 0.1,
    device: str | None = None,
    dtype: str = "float32",
    trust_remote_code: bool = False,
    datasets: Sequence[Dataset] = (),
    command: str = "",
    show_progress: bool = False,
) -> Outcome:
    """Turn a model into a landmark model, or go on with a run that was interrupted.

    Parameters
    ----------
    base : str or Path
        The teacher: a folder or hub id. Not one that is a landmark model.
    source : Source
    out : Path
        The landmark model, once it is finished. What a run needs to go on, and its log, are in ``training`` in it.
    init : str or Path, optional
        Start from this landmark model (of the same architecture) in place of a copy of ``base``.
    recipe : Recipe, optional
    schedule : Schedule, optional
    max_seq_length : int, optional
        Longest row in training, and of the landmark model; by default what the base model reads, at most 512.
    pooling : {"mean", "cls", "lasttoken"}, optional
        How the base model pools; by default what its folder says.
    neighbour_weight : float
        Of the landmark model in use; see :class:`lmk_embed.LandmarkConfig`. Training does not depend on it.
    device : str, optional
    dtype : str
        "bfloat16": the teacher and the student's multiplications; more than twice as fast where the processor
        knows the type. The student's weights stay in float32.
    trust_remote_code : bool
    datasets : sequence of Dataset
        To evaluate on at each checkpoint; the best checkpoint is kept.
    command : str
        For the model card.
    show_progress : bool

    Returns
    -------
    Outcome

    Raises
    ------
    ConfigError
        If a setting is impossible, ``out`` holds a run with other settings, or ``base`` is a landmark model.
    CorpusError
        If there is nothing to train on.
    CheckpointError
        If a model does not load.
    MissingExtraError
        If a library of the ``train`` extra is not installed.
    """
    try:
        import accelerate  # noqa: F401  (the trainer needs it)
    except ImportError as error:
        raise missing_extra("accelerate", "train") from error
    from lmk_embed.training.trainer import Run, train

    recipe, schedule = recipe or Recipe(), schedule or Schedule()
    teacher_parts = _teacher(base, pooling, max_seq_length, device, dtype, trust_remote_code=trust_remote_code)
    student_parts = _student(
        init or base, teacher_parts, neighbour_weight, device, trust_remote_code=trust_remote_code
    )
    work = out / WORK
    settings = {
        "base": str(base),
        "init": None if init is None else str(init),
        "texts": [str(path) for path in source.texts],
        "queries": [str(path) for path in source.queries],
        "sources": list(source.sources),
        "spans": [str(path) for path in source.spans],
        "pairs": [str(path) for path in source.pairs],
        "recipe": asdict(recipe),
        "schedule": asdict(schedule),
        "config": student_parts.config.to_dict(),
        "dtype": dtype,
        "datasets": [dataset.name for dataset in datasets],
    }
    claim(out, settings)
    texts = read_corpus(source.texts, work / "texts", sources=source.sources)
    queries = _queries(source, work)
    questions = None
    if source.spans or source.pairs:
        questions = read_questions(source.spans, source.pairs, source.sources)
    for corpus in (texts, queries, questions):
        if corpus is not None:
            report_problems(corpus.facts)
    sampler = Sampler(
        student_parts.tokenizer,
        student_parts.config,
        student_parts.max_positions,
        texts,
        queries,
        questions,
        recipe,
        schedule.seed,
    )
    teacher = Teacher(teacher_parts.backend, teacher_parts.config.base_pooling, recipe)
    run = Run(
        student=student_parts,
        sampler=sampler,
        targets=Targets(teacher, work / "targets" if schedule.epochs > 1 else None),
        recipe=recipe,
        schedule=schedule,
        folder=work,
        autocast=dtype == "bfloat16",
        datasets=tuple(datasets),
        show_progress=show_progress,
    )
    result = train(run)
    write_curve(result.history, work)
    if not result.finished:
        return Outcome(None, result.step, result.tokens)
    read = {"Training text": texts, "Short texts": queries, "Questions with answers": questions}
    facts = {title: corpus.facts for title, corpus in read.items() if corpus is not None}
    _publish(student_parts, out, Card(command, settings, facts, result.history, result.scores))
    return Outcome(out, result.step, result.tokens, result.scores)


def _teacher(
    base: str | Path,
    pooling: RowPooling | None,
    max_seq_length: int | None,
    device: str | None,
    dtype: str,
    *,
    trust_remote_code: bool,
) -> Parts:
    asked: dict[str, Any] = {} if pooling is None else {"base_pooling": pooling}
    parts = _load(base, asked, device, dtype, trust_remote_code=trust_remote_code)
    if parts.config.landmark_trained:
        raise ConfigError(
            f"{base} is a landmark model already; give the model it was made from as base, "
            "and this one as init, to train it further"
        )
    if max_seq_length is not None and max_seq_length > parts.max_positions:
        raise ConfigError(
            f"max_seq_length={max_seq_length}, but the model reads at most {parts.max_positions} tokens"
        )
    length = max_seq_length or min(parts.max_positions, _ROW)
    return Parts(
        parts.backend,
        parts.tokenizer,
        parts.config.override(max_seq_length=length),
        parts.max_positions,
        parts.source,
    )


def _student(
    init: str | Path, teacher: Parts, neighbour_weight: float, device: str | None, *, trust_remote_code: bool
) -> Parts:
    parts = _load(init, {}, device, "float32", trust_remote_code=trust_remote_code)
    if parts.tokenizer.serialized != teacher.tokenizer.serialized:
        raise ConfigError(f"{init} has another tokenizer than the base model; it cannot be trained towards it")
    if parts.backend.dimension != teacher.backend.dimension:
        raise ConfigError(
            f"{init} has {parts.backend.dimension} dimensions, the base model {teacher.backend.dimension}"
        )
    config = teacher.config.override(
        pooling="landmark",
        landmark_trained=True,
        context="window",
        overflow="window",
        boundaries="sentence",
        granularity=LandmarkConfig().granularity,
        overlap=None,
        neighbour_weight=neighbour_weight,
    )
    return Parts(parts.backend, parts.tokenizer, config, parts.max_positions, parts.source)


def _load(
    model: str | Path | None, settings: dict[str, Any], device: str | None, dtype: str, *, trust_remote_code: bool
) -> Parts:
    return load_parts(
        model,
        settings,
        revision=None,
        device=device,
        dtype=dtype,
        attn_implementation=None,
        trust_remote_code=trust_remote_code,
    )


def _queries(source: Source, work: Path) -> TextCorpus | None:
    if not source.queries:
        return None
    return read_corpus(source.queries, work / "queries", sources=source.sources, field_names=("query", "text"))


def _publish(student: Parts, out: Path, card: Card) -> None:
    encoder = LandmarkEncoder(
        student.backend, student.tokenizer, student.config, max_positions=student.max_positions
    )

    def write(folder: Path) -> None:
        encoder.save_pretrained(folder)
        write_card(card, folder)

    publish(out, write)
