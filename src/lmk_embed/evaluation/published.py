"""Published benchmarks, as ``mteb`` downloads and scores them, for a landmark model."""

from __future__ import annotations

import copy
import difflib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lmk_embed.encoder import LandmarkEncoder
from lmk_embed.errors import ConfigError, missing_extra
from lmk_embed.evaluation.report import write_files

if TYPE_CHECKING:
    from mteb import AbsTask, SentenceTransformerEncoderWrapper

#: Short names, and what mteb calls them.
BENCHMARKS: dict[str, str] = {
    "msmarco": "MSMARCO",
    "beir": "BEIR",
    "mteb-en": "MTEB(eng, v2)",
    "mldr": "MultiLongDocRetrieval",
    "coir": "CoIR",
    "longembed": "LongEmbed",
}
#: The test split alone is what publications state; mteb would take others, too.
_SPLITS = {"MultiLongDocRetrieval": ["test"], "MSMARCO": ["dev"]}


@dataclass(frozen=True, slots=True)
class TaskScore:
    """The main score of one task.

    Attributes
    ----------
    task : str
    kind : str
        Such as Retrieval or STS.
    metric : str
        As mteb names it, such as ``ndcg_at_10``.
    score : float
        Mean over the task's splits and languages.
    revision : str
        Of its data.
    """

    task: str
    kind: str
    metric: str
    score: float
    revision: str


@dataclass(frozen=True, slots=True)
class PublishedReport:
    """What :func:`run_published` has measured.

    Attributes
    ----------
    settings : dict
    scores : tuple of TaskScore
    """

    settings: dict[str, Any]
    scores: tuple[TaskScore, ...]

    def to_markdown(self) -> str:
        """Return a table of the tasks and, by kind where there are several, their mean."""
        lines = ["| task | kind | metric | score |", "| --- | --- | --- | ---: |"]
        lines += [f"| {each.task} | {each.kind} | {each.metric} | {each.score:.4f} |" for each in self.scores]
        kinds = list(dict.fromkeys(each.kind for each in self.scores))
        for kind in kinds:
            found = [each.score for each in self.scores if each.kind == kind]
            if len(found) > 1:
                lines.append(f"| **mean of {len(found)}** | {kind} | | **{sum(found) / len(found):.4f}** |")
        if len(kinds) > 1:
            mean = sum(each.score for each in self.scores) / len(self.scores)
            lines.append(f"| **mean of {len(self.scores)}** | all | | **{mean:.4f}** |")
        return "\n".join(lines) + "\n"

    def save(self, folder: Path) -> list[Path]:
        """Write ``benchmark.json`` and ``benchmark.md``.

        Parameters
        ----------
        folder : Path

        Returns
        -------
        list of Path
        """
        facts = {"settings": self.settings, "scores": [asdict(each) for each in self.scores]}
        files = {"benchmark.json": json.dumps(facts, indent=1) + "\n", "benchmark.md": self.to_markdown()}
        return write_files(folder, {name: content.encode() for name, content in files.items()})


def published_tasks(names: Sequence[str], languages: Sequence[str] | None = None) -> list[AbsTask]:
    """Return the tasks of benchmarks; nothing is downloaded yet.

    Parameters
    ----------
    names : sequence of str
        Keys of :data:`BENCHMARKS`, or names of mteb's own benchmarks and tasks.
    languages : sequence of str, optional
        Three-letter codes such as ``eng``: only these parts of tasks in several languages.

    Returns
    -------
    list of mteb.AbsTask
        Each once.

    Raises
    ------
    ConfigError
        If there is no such benchmark (the nearest names are suggested), or nothing in those languages.
    MissingExtraError
        If ``lmk-embed[benchmarks]`` is not installed.

    Examples
    --------
    >>> [task.metadata.name for task in published_tasks(["mldr"])]
    ['MultiLongDocRetrieval']
    """
    mteb = _mteb()
    found: dict[str, AbsTask] = {}
    for name in names:
        for task in _tasks_of(mteb, BENCHMARKS.get(name.lower(), name)):
            part = copy.copy(task)  # mteb hands the same objects out again
            if languages:
                try:
                    part.filter_languages(list(languages), hf_subsets=list(part.hf_subsets))
                except ValueError:  # nothing in these languages
                    continue
            found.setdefault(task.metadata.name, part)
    if not found:
        raise ConfigError(f"no task of {', '.join(names)} has a part in {', '.join(languages or ())}")
    return list(found.values())


def run_published(
    encoder: LandmarkEncoder,
    tasks: Sequence[AbsTask],
    out: Path,
    *,
    name: str = "bundled",
    device: str | None = None,
    batch_size: int = 32,
    show_progress: bool = True,
) -> PublishedReport:
    """Score the document vectors of an encoder on tasks of mteb.

    Parameters
    ----------
    encoder : LandmarkEncoder
    tasks : sequence of mteb.AbsTask
        From :func:`published_tasks`, or one's own.
    out : Path
        Its subfolder ``results`` keeps each finished task, so that an interrupted run goes on behind it.
    name : str
        Of the model, for reports.
    device : str, optional
        Such as "cuda:0"; found by itself otherwise.
    batch_size : int
        Texts in memory at once.
    show_progress : bool

    Returns
    -------
    PublishedReport

    Raises
    ------
    MissingExtraError
        If ``lmk-embed[benchmarks]`` is not installed.
    """
    mteb = _mteb()
    found = mteb.evaluate(
        mteb_model(encoder, name, device=device),
        list(tasks),
        cache=mteb.ResultCache(out / "results"),
        co2_tracker=False,
        encode_kwargs={"batch_size": batch_size, "show_progress_bar": show_progress},
        show_progress_bar=show_progress,
    )
    kinds = {task.metadata.name: task.metadata for task in tasks}
    scores = tuple(
        TaskScore(
            task=result.task_name,
            kind=str(kinds[result.task_name].type),
            metric=str(kinds[result.task_name].main_score),
            score=float(result.get_score()),
            revision=str(result.dataset_revision),
        )
        for result in found.task_results
    )
    settings = {
        "model": name,
        "fingerprint": encoder.fingerprint,
        "config": encoder.config.to_dict(),
        "mteb": mteb.__version__,
    }
    return PublishedReport(settings, scores)


def mteb_model(
    encoder: LandmarkEncoder, name: str = "bundled", *, device: str | None = None
) -> SentenceTransformerEncoderWrapper:
    """Return an encoder as ``mteb.evaluate`` takes it, with a name and revision of its own.

    mteb keeps results by the name and revision of a model and knows neither for a local folder: two models would
    be given each other's results. Here the revision is the encoder's fingerprint, with the type of its numbers.

    Parameters
    ----------
    encoder : LandmarkEncoder
    name : str
    device : str, optional

    Returns
    -------
    mteb.SentenceTransformerEncoderWrapper
    """
    mteb = _mteb()
    try:
        from sentence_transformers_lmk import to_sentence_transformer
    except ImportError as error:
        raise missing_extra(str(error.name), "benchmarks") from error

    model: SentenceTransformerEncoderWrapper = mteb.SentenceTransformerEncoderWrapper(
        to_sentence_transformer(encoder, device=device)
    )
    owner, _, short = name.strip("/").rpartition("/")
    model.mteb_model_meta = model.mteb_model_meta.model_copy(
        update={
            "name": f"{Path(owner).name or 'local'}/{short}",
            "revision": f"{encoder.fingerprint}-{encoder.to_dict()['dtype']}",
        }
    )
    return model


def _mteb() -> Any:
    try:
        import mteb
    except ImportError as error:
        raise missing_extra("mteb", "benchmarks") from error
    return mteb


def _tasks_of(mteb: Any, name: str) -> list[AbsTask]:
    try:
        return list(mteb.get_benchmark(name).tasks)
    except KeyError:
        pass
    try:
        return [mteb.get_task(name, eval_splits=_SPLITS.get(name))]
    except KeyError:
        known = [*BENCHMARKS, *(each.name for each in mteb.get_benchmarks())]
        near = difflib.get_close_matches(name, known, n=3) or list(BENCHMARKS)
        raise ConfigError(f"mteb has no benchmark or task {name!r}; near: {', '.join(map(repr, near))}") from None
