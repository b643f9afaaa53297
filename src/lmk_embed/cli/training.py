"""``lmk train`` and ``lmk mine``: train a model with labels, and find hard negatives for it."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer


def train(
    name: Annotated[str, typer.Argument(help="distill, contrastive, chunk-contrastive, kd.", show_default=False)],
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
    """Train a model as a file of settings says; `lmk distill` is the same as its recipe of that name.

    It may be stopped at any time: run the same command again and it goes on. With several GPUs, or processes, put
    `accelerate launch -m` in front, with lmk_embed for lmk.
    """
    from lmk_embed.training import Outcome, Source, distill
    from lmk_embed.training.fit import Fitted, fit
    from lmk_embed.training.recipes import Distillation, read_recipe

    recipe = read_recipe(name, config)
    command = shlex.join(["lmk", *sys.argv[1:]])
    done: Fitted | Outcome
    if isinstance(recipe, Distillation):
        settings = recipe.model.model_dump(exclude={"base"})
        done = distill(
            recipe.model.base,
            Source(*(getattr(recipe.data, name) for name in ("text", "queries", "sources", "spans", "pairs"))),
            out,
            recipe=recipe.loss,
            schedule=recipe.training,
            device=device,
            command=command,
            show_progress=True,
            **settings,
        )
    else:
        done = fit(recipe, out, device=device, command=command, show_progress=True)
    if done.folder is None:
        typer.echo(f"interrupted at step {done.step}; run the same command again to go on", err=True)
        raise typer.Exit(130)
    typer.echo(f"model in {out}; use it with --model {out}")


def mine(
    pairs: Annotated[
        list[Path],
        typer.Argument(
            metavar="PATH",
            help="Rows with query and positive, as .jsonl(.gz); or BEIR folders.",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path, typer.Option("--out", metavar="FILE", help="To write: .jsonl or .jsonl.gz.", show_default=False)
    ],
    model: Annotated[
        str | None,
        typer.Option("--model", help="Folder or hub id; the bundled model by default.", show_default=False),
    ] = None,
    source: Annotated[
        list[str] | None, typer.Option("--source", help="Only rows whose field source matches. May be repeated.")
    ] = None,
    negatives: Annotated[int, typer.Option("--negatives", min=1, help="For each query.")] = 4,
    margin: Annotated[
        float, typer.Option("--margin", help="Leave out texts this close to the positive's score.")
    ] = 0.05,
    cross_encoder: Annotated[
        str | None, typer.Option("--cross-encoder", help="Folder or hub id of a model that scores candidates.")
    ] = None,
    device: Annotated[str | None, typer.Option("--device", show_default=False)] = None,
) -> None:
    """Find texts that a model takes for answers and that are none, for `lmk train contrastive` and `kd`."""
    from lmk_embed import LandmarkEncoder
    from lmk_embed.training.mining import mine as run

    encoder = LandmarkEncoder.from_pretrained(model, device=device)
    done = run(
        pairs,
        encoder,
        out,
        sources=tuple(source or ()),
        negatives=negatives,
        margin=margin,
        cross_encoder=cross_encoder,
        show_progress=sys.stderr.isatty(),
    )
    typer.echo(
        f"{done.rows} rows in {out}" + (f"; {done.left_out} queries had fewer negatives" if done.left_out else "")
    )
