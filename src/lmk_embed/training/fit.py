"""Training with labels: Sentence Transformers' trainer and losses on a landmark model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lmk_embed.config import LandmarkConfig
from lmk_embed.errors import ConfigError, missing_extra
from lmk_embed.training.corpus import CorpusError, Facts
from lmk_embed.training.labelled import Labelled, read_pairs, read_scores, read_spans
from lmk_embed.training.recipes import ChunkContrastive, Contrastive, ScoreDistillation, TrainingRecipe
from lmk_embed.training.record import Card, write_card, write_curve
from lmk_embed.training.workspace import WORK, claim, publish, report_problems

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from torch import nn

    from sentence_transformers_lmk import LandmarkTransformer

_LOG_STEPS = 10
#: A token of most text has no more characters; documents are cut to what some rows hold.
_CHARACTERS = 5
_ROWS = 2


@dataclass(frozen=True, slots=True)
class Fitted:
    """What a call of :func:`fit` has done.

    Attributes
    ----------
    folder : Path or None
        The finished model; None if training was interrupted before its end.
    step : int
    loss : float or None
        Mean of the last steps.
    """

    folder: Path | None
    step: int
    loss: float | None


def fit(
    recipe: TrainingRecipe, out: Path, *, device: str | None = None, command: str = "", show_progress: bool = False
) -> Fitted:
    """Train a model with labels, or go on with a run that was interrupted.

    Started by ``accelerate launch``, every process reads batches of its own and contrasts them with the texts
    of all.

    Parameters
    ----------
    recipe : TrainingRecipe
    out : Path
        Becomes a landmark model that :class:`lmk_embed.LandmarkEncoder` and ``SentenceTransformer`` read; its
        subfolder ``training`` has checkpoints and the loss curve.
    device : str, optional
        "cpu" to leave accelerators alone; found by itself otherwise.
    command : str
        For the card of the model.
    show_progress : bool

    Returns
    -------
    Fitted

    Raises
    ------
    ConfigError
        If settings do not fit the model, or ``out`` holds something else.
    CorpusError
        If there is nothing to train on, or rows share too many texts for batches without repetition.
    LossError
        If the loss is infinite or not a number.
    MissingExtraError
        If ``lmk-embed[train]`` is not installed.
    """
    try:
        from accelerate import PartialState

        from lmk_embed.training.session import Stop, history_of, last_checkpoint
    except ImportError as error:
        raise missing_extra(str(error.name or "accelerate"), "train") from error

    module = _module(recipe)
    settings = {"recipe": recipe.name, **recipe.model_dump(mode="json")}
    with PartialState(cpu=device == "cpu").main_process_first():
        claim(out, settings)
    examples = _examples(recipe, module)
    report_problems(examples.facts)
    checkpoint = last_checkpoint(out / WORK / "checkpoints")
    history = history_of(checkpoint)
    if checkpoint is not None and history and history[-1]["step"] >= recipe.training.steps:
        if not (out / "config.json").exists():  # killed between its last step and its end
            _publish(_model(_module(recipe, checkpoint)), recipe, command, examples.facts, history, out)
        return Fitted(out, history[-1]["step"], _last_loss(history))
    stop = Stop()
    trainer = _trainer(recipe, module, examples, out / WORK, stop, device=device, show_progress=show_progress)
    with stop.listening():
        trainer.train(resume_from_checkpoint=checkpoint)
    history = list(trainer.state.log_history)
    if not stop.requested and trainer.state.global_step < recipe.training.steps:
        raise CorpusError(
            f"training ended at step {trainer.state.global_step} of {recipe.training.steps}: the "
            f"{len(examples.rows)} rows share so many texts that no batch of {recipe.training.batch_size} without "
            "repetition is left; "
            "lower training.batch_size, or give more rows"
        )
    done = Fitted(None if stop.requested else out, trainer.state.global_step, _last_loss(history))
    if trainer.is_world_process_zero():
        write_curve(history, out / WORK)
        if done.folder is not None:
            _publish(trainer.model, recipe, command, examples.facts, history, out)
    return done


def _last_loss(history: list[dict[str, Any]]) -> float | None:
    losses = [float(entry["loss"]) for entry in history if "loss" in entry]
    return losses[-1] if losses else None


def _module(recipe: TrainingRecipe, folder: str | None = None) -> LandmarkTransformer:
    """Load the base model, or a checkpoint of the run, with the recipe's settings."""
    from sentence_transformers_lmk import LandmarkTransformer

    asked = recipe.model
    settings: dict[str, Any] = {
        "pooling": asked.pooling,
        "query_prompt": asked.query_prompt,
        "document_prompt": asked.document_prompt,
        "context": "window",
        "landmark_trained": asked.pooling == "landmark",
    }
    if not LandmarkConfig(pooling=asked.pooling).pools_rows:
        settings |= {"granularity": asked.granularity, "boundaries": asked.boundaries}
    elif asked.granularities:
        raise ConfigError(f"model.granularities are for chunks that share a row; {asked.pooling!r} has none")
    if asked.max_seq_length is not None:
        settings["max_seq_length"] = asked.max_seq_length
    module = LandmarkTransformer.from_pretrained(
        folder or asked.base, trust_remote_code=asked.trust_remote_code, **settings
    )
    module.granularities = asked.granularities
    too_long = [each for each in _dimensions(recipe) if each > module.get_embedding_dimension()]
    if too_long:
        raise ConfigError(
            f"loss.dimensions {too_long} are more than the {module.get_embedding_dimension()} of {asked.base}"
        )
    return module


def _dimensions(recipe: TrainingRecipe) -> tuple[int, ...]:
    return recipe.loss.dimensions if isinstance(recipe, Contrastive) else ()


def _examples(recipe: TrainingRecipe, module: LandmarkTransformer) -> Labelled:
    paths, sources = [Path(path) for path in recipe.data.train], recipe.data.sources
    if isinstance(recipe, ChunkContrastive):
        return read_spans(paths, sources, characters=module.max_seq_length * _CHARACTERS * _ROWS)
    if isinstance(recipe, ScoreDistillation):
        return read_scores(paths, recipe.loss.group_size, sources)
    return read_pairs(paths, sources)


def _loss(recipe: TrainingRecipe, model: SentenceTransformer) -> nn.Module:
    from accelerate import PartialState
    from sentence_transformers.sentence_transformer import losses

    from lmk_embed.training.contrast import ChunkContrastiveLoss

    if isinstance(recipe, ChunkContrastive):
        return ChunkContrastiveLoss(model, recipe.loss.in_document_weight, recipe.loss.temperature)
    if isinstance(recipe, ScoreDistillation):
        return losses.DistillKLDivLoss(
            model,
            student_temperature=recipe.loss.temperature,
            teacher_temperature=recipe.loss.teacher_temperature,
        )
    assert isinstance(recipe, Contrastive)
    scale, size = 1 / recipe.loss.temperature, recipe.training.mini_batch_size
    gather = PartialState().num_processes > 1
    loss: nn.Module = (
        losses.MultipleNegativesRankingLoss(model, scale=scale, gather_across_devices=gather)
        if size is None
        else losses.CachedMultipleNegativesRankingLoss(
            model, scale=scale, mini_batch_size=size, gather_across_devices=gather
        )
    )
    if recipe.loss.dimensions:
        full = model.get_embedding_dimension()
        assert full is not None  # the module knows it
        loss = losses.MatryoshkaLoss(model, loss, sorted({full, *recipe.loss.dimensions}, reverse=True))
    return loss


def _model(module: LandmarkTransformer, device: str | None = None) -> SentenceTransformer:
    from sentence_transformers import SentenceTransformer

    prompts = {"query": module.config.query_prompt, "document": module.config.document_prompt}
    return SentenceTransformer(modules=[module], prompts=prompts, device=device, similarity_fn_name="cosine")


def _trainer(
    recipe: TrainingRecipe,
    module: LandmarkTransformer,
    examples: Labelled,
    folder: Path,
    stop: Any,
    *,
    device: str | None,
    show_progress: bool,
) -> Any:
    from datasets import Dataset
    from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments
    from sentence_transformers.sentence_transformer.training_args import BatchSamplers
    from transformers import PrinterCallback, ProgressCallback

    from lmk_embed.training.session import Progress, finite

    class Guarded(SentenceTransformerTrainer):
        """Refuses to learn from a loss that is no number."""

        def compute_loss(self, model: Any, inputs: Any, *more: Any, **options: Any) -> Any:
            loss = super().compute_loss(model, inputs, *more, **options)
            finite(loss[0] if isinstance(loss, tuple) else loss, self)
            return loss

    schedule = recipe.training
    config = module.config
    model = _model(module, device).train()
    columns = list(examples.rows[0])
    # A text that comes twice in a batch would be its own negative.
    contrastive = isinstance(recipe, Contrastive)
    sampler = BatchSamplers.NO_DUPLICATES if contrastive else BatchSamplers.BATCH_SAMPLER
    less_memory: dict[str, Any] = {"gradient_checkpointing": True} if schedule.gradient_checkpointing else {}
    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(folder / "checkpoints"),
        max_steps=schedule.steps,
        per_device_train_batch_size=schedule.batch_size,
        learning_rate=schedule.learning_rate,
        lr_scheduler_type="linear",
        warmup_steps=schedule.warmup_steps,
        weight_decay=schedule.weight_decay,
        max_grad_norm=schedule.max_grad_norm,
        seed=schedule.seed,
        data_seed=schedule.seed,
        bf16=schedule.dtype == "bfloat16",
        fp16=schedule.dtype == "float16",
        use_cpu=device == "cpu",
        batch_sampler=sampler,
        prompts={
            column: config.query_prompt if column == "query" else config.document_prompt
            for column in columns
            if column != "label"
        },
        dataloader_drop_last=len(examples.rows) >= schedule.batch_size,
        logging_steps=_LOG_STEPS,
        logging_nan_inf_filter=False,
        save_strategy="steps",
        save_steps=schedule.save_steps,
        save_total_limit=2,
        ddp_find_unused_parameters=True,  # a pooling head, which is not used
        report_to=[],
        disable_tqdm=True,
        log_level="error",
        **less_memory,
    )
    trainer = Guarded(
        model=model,
        args=arguments,
        train_dataset=Dataset.from_list(examples.rows),
        loss=_loss(recipe, model),
        callbacks=[Progress(folder, stop, evaluate=False, show=show_progress)],
    )
    trainer.remove_callback(PrinterCallback)
    trainer.remove_callback(ProgressCallback)
    return trainer


def _publish(
    model: Any, recipe: TrainingRecipe, command: str, facts: Facts, history: list[dict[str, Any]], out: Path
) -> None:
    settings = {
        "base": recipe.model.base,
        "init": None,
        "recipe": recipe.name,
        "schedule": recipe.training.model_dump(mode="json"),
        **recipe.model_dump(mode="json", exclude={"training"}),
    }

    def write(folder: Path) -> None:
        model.save_pretrained(str(folder), create_model_card=False)
        write_card(Card(command, settings, {"Training rows": facts}, history, {}), folder)

    publish(out, write)
