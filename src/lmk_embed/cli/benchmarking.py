"""``lmk benchmark``: published benchmarks through mteb."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lmk_embed.errors import ConfigError


def benchmark(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME",
            help="msmarco, beir, mteb-en, mldr, coir, longembed; or what mteb calls a benchmark or task.",
            show_default=False,
        ),
    ],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder for the report.", show_default=False)],
    model: Annotated[
        str | None,
        typer.Option("--model", help="Folder or hub id; the bundled model by default.", show_default=False),
    ] = None,
    language: Annotated[
        list[str] | None,
        typer.Option("--language", help="Only these parts, such as eng. May be repeated.", show_default="all"),
    ] = None,
    max_seq_length: Annotated[
        int | None,
        typer.Option("--max-seq-length", min=4, help="Tokens of a row.", show_default="what the model says"),
    ] = None,
    granularity: Annotated[
        int | None,
        typer.Option("--granularity", min=1, help="Tokens of a chunk.", show_default="what the model says"),
    ] = None,
    batch_size: Annotated[int, typer.Option("--batch-size", min=1, help="Texts in memory at once.")] = 32,
    device: Annotated[
        str | None,
        typer.Option("--device", help='Such as "cpu" or "cuda:0"; found by itself.', show_default=False),
    ] = None,
    dtype: Annotated[str, typer.Option("--dtype", help='"bfloat16" is faster on a GPU.')] = "float32",
) -> None:
    """Score a model's document vectors on published benchmarks, which mteb downloads.

    Finished tasks are kept, so it may be stopped at any time: run it again and it goes on.
    """
    from lmk_embed import LandmarkEncoder
    from lmk_embed.cli.options import settings_of
    from lmk_embed.evaluation.published import published_tasks, run_published

    if out.exists() and not out.is_dir():
        raise ConfigError(f"{out} is a file; --out names a folder")
    tasks = published_tasks(names, language)
    asked = settings_of(model=model, granularity=granularity, max_seq_length=max_seq_length)
    encoder = LandmarkEncoder.from_pretrained(device=device, dtype=dtype, **asked)
    try:
        report = run_published(encoder, tasks, out, name=model or "bundled", device=device, batch_size=batch_size)
    except KeyboardInterrupt:
        typer.echo(f"interrupted: finished tasks are kept in {out}; run the same command again to go on", err=True)
        raise typer.Exit(130) from None
    files = report.save(out)
    typer.echo(report.to_markdown(), nl=False)
    typer.echo(f"written: {', '.join(map(str, files))}", err=True)
