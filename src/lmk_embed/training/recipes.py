"""Settings of the training recipes, as TOML files state them."""

from __future__ import annotations

import difflib
import tomllib
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from lmk_embed.config import DEFAULT_GRANULARITY, Boundaries, Pooling, RowPooling
from lmk_embed.errors import ConfigError
from lmk_embed.training.distill import Schedule
from lmk_embed.training.sampling import Recipe

Whole = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0)]


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ModelSettings(_Section):
    """``[model]``: what is trained, and how it will be used.

    Attributes
    ----------
    base : str
        Folder or hub id to start from; a landmark model or any encoder.
    pooling, boundaries, granularity, max_seq_length
        See :class:`lmk_embed.LandmarkConfig`; they are saved with the model.
    granularities : tuple of int
        In training, the granularity of each text is drawn from these; evaluation and use keep ``granularity``.
    query_prompt, document_prompt : str
        Also in training.
    trust_remote_code : bool
    """

    base: str
    pooling: Pooling = "landmark"
    boundaries: Boundaries = "sentence"
    granularity: Whole | None = DEFAULT_GRANULARITY
    granularities: tuple[Whole, ...] = ()
    max_seq_length: Annotated[int, Field(ge=4)] | None = None
    query_prompt: str = ""
    document_prompt: str = ""
    trust_remote_code: bool = False


class DataSettings(_Section):
    """``[data]``: where training rows come from.

    Attributes
    ----------
    train : tuple of str
        Files and folders: JSON lines, data sets in BEIR layout, folders that Hugging Face ``datasets`` saved.
    sources : tuple of str
        Patterns for the ``source`` of JSON rows; empty: all.
    """

    train: tuple[str, ...] = Field(min_length=1)
    sources: tuple[str, ...] = ()


class TrainingSettings(_Section):
    """``[training]``: how long, how fast, and where.

    Attributes
    ----------
    steps : int
        Updates of the weights.
    batch_size : int
        Rows of an update, on each device.
    mini_batch_size : int or None
        ``contrastive``: rows in memory at once; vectors of the whole batch are contrasted all the same.
    learning_rate : float
        At its peak; it falls to 0 along a line.
    warmup_steps : int
    weight_decay, max_grad_norm : float
    seed : int
    save_steps : int
        Steps between checkpoints to go on from.
    dtype : {"float32", "bfloat16", "float16"}
        Other than float32: mixed precision.
    gradient_checkpointing : bool
        Less memory, more time.
    """

    steps: Whole = 1000
    batch_size: Whole = 32
    mini_batch_size: Whole | None = None
    learning_rate: Positive = 2e-5
    warmup_steps: Annotated[int, Field(ge=0)] = 50
    weight_decay: Annotated[float, Field(ge=0)] = 0.01
    max_grad_norm: Positive = 1.0
    seed: Annotated[int, Field(ge=0)] = 0
    save_steps: Whole = 200
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    gradient_checkpointing: bool = False


class ContrastiveLoss(_Section):
    """``[loss]`` of ``contrastive``.

    Attributes
    ----------
    temperature : float
    dimensions : tuple of int
        Lengths of vectors that are to be good, too (Matryoshka), besides the full one.
    """

    temperature: Positive = 0.05
    dimensions: tuple[Whole, ...] = ()


class ChunkLoss(_Section):
    """``[loss]`` of ``chunk-contrastive``.

    Attributes
    ----------
    temperature : float
    in_document_weight : float
        Share of the contrast with the other chunks of the same document, against that with all documents.
    """

    temperature: Positive = 0.05
    in_document_weight: Share = 0.1


class ScoreLoss(_Section):
    """``[loss]`` of ``kd``.

    Attributes
    ----------
    group_size : int
        Candidates of each query that are used.
    temperature : float
        Of the student's cosines.
    teacher_temperature : float
        Of the teacher's scores.
    """

    group_size: Annotated[int, Field(ge=2)] = 8
    temperature: Positive = 0.05
    teacher_temperature: Positive = 1.0


class TrainingRecipe(_Section):
    """What all recipes state."""

    name: ClassVar[str]
    model: ModelSettings
    data: DataSettings
    training: TrainingSettings = TrainingSettings()


class Contrastive(TrainingRecipe):
    """Queries and the documents that answer them, against all other documents of the batch.

    Attributes
    ----------
    loss : ContrastiveLoss
    """

    name = "contrastive"
    loss: ContrastiveLoss = ContrastiveLoss()


class ChunkContrastive(TrainingRecipe):
    """Queries and the chunks that hold their answers, against all other chunks.

    Attributes
    ----------
    loss : ChunkLoss
    """

    name = "chunk-contrastive"
    loss: ChunkLoss = ChunkLoss()

    @model_validator(mode="after")
    def _chunks_share_a_row(self) -> ChunkContrastive:
        if self.model.pooling not in ("landmark", "multi_cls", "span_mean"):
            raise ValueError(f"model.pooling={self.model.pooling!r} has no chunks in context; use 'landmark'")
        return self


class ScoreDistillation(TrainingRecipe):
    """A teacher's scores over candidates for each query.

    Attributes
    ----------
    loss : ScoreLoss
    """

    name = "kd"
    loss: ScoreLoss = ScoreLoss()


class DistilledModel(_Section):
    """``[model]`` of ``distill``: parameters of :func:`lmk_embed.training.distill`."""

    base: str
    init: str | None = None
    pooling: RowPooling | None = None
    max_seq_length: Annotated[int, Field(ge=4)] | None = None
    neighbour_weight: Share = 0.1
    dtype: Literal["float32", "bfloat16"] = "float32"
    trust_remote_code: bool = False


class DistilledData(_Section):
    """``[data]`` of ``distill``; see :class:`lmk_embed.training.Source`."""

    text: tuple[Path, ...] = Field(min_length=1)
    queries: tuple[Path, ...] = ()
    sources: tuple[str, ...] = ()
    spans: tuple[Path, ...] = ()
    pairs: tuple[Path, ...] = ()


class Distillation(_Section):
    """Label-free distillation, as ``lmk distill`` runs it.

    Attributes
    ----------
    model : DistilledModel
    data : DistilledData
    training : Schedule
    loss : Recipe
    """

    name: ClassVar[str] = "distill"
    model: DistilledModel
    data: DistilledData
    training: Schedule = Schedule()
    loss: Recipe = Recipe()


AnyRecipe = TrainingRecipe | Distillation
RECIPES: dict[str, type[AnyRecipe]] = {
    recipe.name: recipe for recipe in (Distillation, Contrastive, ChunkContrastive, ScoreDistillation)
}


def read_recipe(name: str, path: Path) -> AnyRecipe:
    """Read a recipe's settings.

    Parameters
    ----------
    name : str
        One of :data:`RECIPES`.
    path : Path
        A TOML file; paths in it are relative to where the command runs.

    Returns
    -------
    TrainingRecipe or Distillation

    Raises
    ------
    ConfigError
        If there is no such recipe or file, the file is no TOML, a key does not exist (the nearest one is
        suggested), is missing, or has an impossible value. All problems are listed.
    """
    if name not in RECIPES:
        raise ConfigError(f"there is no recipe {name!r}{_nearest(name, RECIPES)}")
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from error
    return parse_recipe(name, table, str(path))


def parse_recipe(name: str, table: dict[str, Any], where: str) -> AnyRecipe:
    """Check the settings of a recipe; see :func:`read_recipe`.

    Parameters
    ----------
    name : str
    table : dict
    where : str
        For messages.

    Examples
    --------
    >>> parse_recipe("kd", {"model": {"base": "m"}, "data": {"train": ["x"]}, "lost": {}}, "kd.toml")
    Traceback (most recent call last):
    lmk_embed.errors.ConfigError: kd.toml: lost: there is no such key; did you mean 'loss'?
    """
    try:
        return RECIPES[name].model_validate(table)
    except ValidationError as error:
        problems = "; ".join(_problem(RECIPES[name], each) for each in error.errors())
        raise ConfigError(f"{where}: {problems}") from error


def _problem(recipe: type[BaseModel], error: Any) -> str:
    *parents, key = [str(part) for part in error["loc"]] or [""]
    at = ".".join([*parents, key])
    if error["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        section: Any = recipe
        for parent in parents:
            section = section.model_fields[parent].annotation
        known = section.model_fields if issubclass(section, BaseModel) else section.__annotations__
        return f"{at}: there is no such key{_nearest(key, known)}"
    if error["type"] == "missing":
        return f"{at}: is needed"
    said = error["msg"].removeprefix("Value error, ")
    return f"{at}: {said}, got {error['input']!r}" if at and error["type"] != "value_error" else said


def _nearest(name: str, known: Any) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(known)}"
