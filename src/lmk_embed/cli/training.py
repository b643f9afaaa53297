"""``lmk train``: train a model with labels."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer


def train(
    name: Annotated[str, typer.Argument(help="contrastive, chunk-contrastive or kd.", show_default=False)],
    config: Annotated[
        Path,
        typer.Option(
            "--config",
            metavar="FILE",
            help="Its settings, as TOML; examples/recipes has one for each.",
            show_default=False,
        ),
    ],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder of the model.", show_default=False)],
    device: Annotated[
        str | None,
        typer.Option("--device", help='"cpu" to leave accelerators alone.', show_default="found by itself"),
    ] = None,
) -> None:
    """Teach a model with questions and answers, after or without `lmk distill`.

    It may be stopped at any time: run the same command again and it goes on. With several GPUs, or processes, put
    `accelerate launch -m` in front, with lmk_embed for lmk.
    """
    from lmk_embed.training.fit import fit
    from lmk_embed.training.recipes import read_recipe

    recipe = read_recipe(name, config)
    done = fit(recipe, out, device=device, command=shlex.join(["lmk", *sys.argv[1:]]), show_progress=True)
    if done.folder is None:
        typer.echo(f"interrupted at step {done.step}; run the same command again to go on", err=True)
        raise typer.Exit(130)
    typer.echo(f"model in {out}; use it with --model {out}")
