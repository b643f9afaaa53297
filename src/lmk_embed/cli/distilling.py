"""``lmk distill``: make a landmark model of any encoder, without labels."""

from __future__ import annotations

import shlex
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class RowPooling(StrEnum):
    """How the base model makes one vector of a text."""

    mean = "mean"
    cls = "cls"
    lasttoken = "lasttoken"


def distill(
    base: Annotated[
        str,
        typer.Argument(help="Folder or hub id of the base model.", show_default=False),
    ],
    text: Annotated[
        list[Path],
        typer.Option(
            "--text",
            metavar="PATH",
            help="Long texts: files or folders of .jsonl, .jsonl.gz (field text), .txt, .md. May be repeated.",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="Folder of the landmark model.", show_default=False)
    ],
    queries: Annotated[
        list[Path] | None,
        typer.Option(
            "--queries",
            metavar="PATH",
            help="Questions, as .jsonl (field query or text) or .txt; else sentences of the text stand for them.",
        ),
    ] = None,
    spans: Annotated[
        list[Path] | None,
        typer.Option(
            "--spans",
            metavar="DIR",
            help="Data set in BEIR layout with spans.jsonl: questions that also teach what answers them.",
        ),
    ] = None,
    pairs: Annotated[
        list[Path] | None,
        typer.Option("--pairs", metavar="PATH", help="The same as .jsonl, with query and positive in each row."),
    ] = None,
    source: Annotated[
        list[str] | None,
        typer.Option(
            "--source", help="Only rows whose field source matches, such as 'python-*'. May be repeated."
        ),
    ] = None,
    init: Annotated[
        str | None, typer.Option("--init", help="Start from this landmark model, in place of a copy of BASE.")
    ] = None,
    steps: Annotated[int, typer.Option("--steps", min=1, help="Batches to train on.")] = 2000,
    epochs: Annotated[int, typer.Option("--epochs", min=1, help="How often to use each batch.")] = 1,
    batch_tokens: Annotated[
        int, typer.Option("--batch-tokens", min=1, help="Tokens of a batch; more on a GPU.")
    ] = 2048,
    learning_rate: Annotated[float, typer.Option("--learning-rate", help="At its peak.")] = 5e-4,
    granularity: Annotated[
        list[int] | None,
        typer.Option(
            "--granularity",
            min=1,
            help="Most tokens of a chunk, drawn for each text. May be repeated.",
            show_default="32, 64, 64, 128",
        ),
    ] = None,
    max_seq_length: Annotated[
        int | None,
        typer.Option("--max-seq-length", min=4, help="Longest row.", show_default="what BASE reads, at most 512"),
    ] = None,
    pooling: Annotated[
        RowPooling | None,
        typer.Option("--pooling", help="How BASE pools a text.", show_default="what its folder says"),
    ] = None,
    passages: Annotated[
        float, typer.Option("--passages", min=0, help="Weight of the passage around a chunk in its target.")
    ] = 1.0,
    neighbours: Annotated[
        float,
        typer.Option(
            "--neighbours", min=0, max=1, help="Weight of the neighbours of a chunk, when the model is used."
        ),
    ] = 0.1,
    answers: Annotated[
        float, typer.Option("--answers", min=0, help="Weight of what --spans and --pairs teach.")
    ] = 0.1,
    evaluate: Annotated[
        list[Path] | None,
        typer.Option(
            "--eval", metavar="DIR", help="Data set to score checkpoints on; the best is kept. May be repeated."
        ),
    ] = None,
    eval_queries: Annotated[
        int | None,
        typer.Option("--eval-queries", min=1, help="Only so many queries of each set, drawn at random."),
    ] = None,
    save_steps: Annotated[
        int, typer.Option("--save-steps", min=1, help="Steps between checkpoints, and between evaluations.")
    ] = 200,
    seed: Annotated[int, typer.Option("--seed", min=0)] = 0,
    dtype: Annotated[
        str, typer.Option("--dtype", help='"bfloat16" is more than twice as fast where the processor knows it.')
    ] = "float32",
    device: Annotated[
        str | None,
        typer.Option("--device", help='Such as "cpu" or "cuda:0"; found by itself.', show_default=False),
    ] = None,
) -> None:
    """Teach a model to speak at landmarks: its own vectors are the targets, so text is all it takes.

    It may be stopped at any time: run the same command again and it goes on. In the end the folder is a landmark
    model for --model, with a card that says how it was made; its subfolder training has the loss curve and may be
    deleted.
    """
    from lmk_embed.training import Recipe, Schedule, Source
    from lmk_embed.training import distill as run

    datasets = []
    if evaluate:
        from lmk_embed.evaluation import read_dataset

        datasets = [read_dataset(folder) for folder in evaluate]
        if eval_queries is not None:
            datasets = [dataset.sample(eval_queries, seed) for dataset in datasets]
    outcome = run(
        base,
        Source(tuple(text), tuple(queries or ()), tuple(source or ()), tuple(spans or ()), tuple(pairs or ())),
        out,
        init=init,
        recipe=Recipe(
            granularities=tuple(granularity) if granularity else Recipe().granularities,
            batch_tokens=batch_tokens,
            passage_weight=passages,
            answer_weight=answers,
        ),
        schedule=Schedule(
            steps=steps, epochs=epochs, learning_rate=learning_rate, save_steps=save_steps, seed=seed
        ),
        max_seq_length=max_seq_length,
        pooling=None if pooling is None else pooling.value,
        neighbour_weight=neighbours,
        device=device,
        dtype=dtype,
        datasets=datasets,
        command=shlex.join(["lmk", *sys.argv[1:]]),
        show_progress=True,
    )
    if outcome.folder is None:
        typer.echo(f"interrupted at step {outcome.step}; run the same command again to go on", err=True)
        raise typer.Exit(130)
    for name, value in outcome.scores.items():
        typer.echo(f"{name}: {value:.3f}", err=True)
    typer.echo(f"landmark model in {out}, after {outcome.tokens:,} tokens; use it with --model {out}")
