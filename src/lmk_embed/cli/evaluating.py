"""``lmk eval``: compare systems on data sets and write a report."""

from __future__ import annotations

import warnings
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from lmk_embed.errors import ConfigError


class Gain(StrEnum):
    """Gain of graded judgements in nDCG."""

    linear = "linear"
    exponential = "exponential"


def evaluate(
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder for the report.", show_default=False)],
    folders: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="DIR",
            help="Data sets in BEIR layout: corpus.jsonl, queries.jsonl, qrels.tsv, optionally spans.jsonl.",
            show_default=False,
        ),
    ] = None,
    system: Annotated[
        list[str] | None,
        typer.Option(
            "--system",
            help="landmark[:GRANULARITY], late-chunking[:GRANULARITY], split-and-embed[:TOKENS[:OVERLAP%]], "
            "smoothed[:TOKENS[:OVERLAP%]], truncated, windows. May be repeated.",
            show_default="landmark, split-and-embed, late-chunking",
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option("--model", help="Folder or hub id; the bundled model by default.", show_default=False),
    ] = None,
    base: Annotated[
        str | None,
        typer.Option(
            "--base",
            help="Model of all systems but landmark: what a landmark model was trained from.",
            show_default="the same as --model",
        ),
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option(
            "--baseline", help="System that differences are to.", show_default="the first split-and-embed"
        ),
    ] = None,
    queries: Annotated[
        int | None, typer.Option("--queries", min=1, help="Only so many queries of each set, drawn at random.")
    ] = None,
    k: Annotated[int, typer.Option("--k", min=1, help="Chunks for IoU, precision and recall.")] = 5,
    budget: Annotated[int, typer.Option("--budget", min=1, help="Retrieved characters for span recall.")] = 3000,
    gain: Annotated[Gain, typer.Option("--gain", help="Of graded judgements in nDCG.")] = Gain.linear,
    resamples: Annotated[int, typer.Option("--resamples", min=1, help="Of the bootstrap.")] = 1000,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of the bootstrap and of --queries.")] = 0,
    cache: Annotated[
        Path | None,
        typer.Option("--cache", metavar="DIR", help="Folder for vectors.", show_default="OUT/vectors"),
    ] = None,
    position: Annotated[
        bool,
        typer.Option(
            "--position-bias",
            help="Hide answers at several depths of documents of several lengths; DIR gives the text around them.",
        ),
    ] = False,
    lengths: Annotated[
        list[int] | None,
        typer.Option(
            "--length", min=16, help="Tokens of these documents. May be repeated.", show_default="512 … 32768"
        ),
    ] = None,
    depths: Annotated[int, typer.Option("--depths", min=1, help="Places in them, from beginning to end.")] = 5,
    candidates: Annotated[int, typer.Option("--candidates", min=2, help="Documents to rank a question.")] = 10,
    device: Annotated[
        str | None,
        typer.Option("--device", help='Such as "cpu" or "cuda:0"; found by itself.', show_default=False),
    ] = None,
    dtype: Annotated[str, typer.Option("--dtype", help='Of all systems; "bfloat16" is faster.')] = "float32",
) -> None:
    """Measure how well systems over one model find documents and passages, with confidence intervals.

    Writes report.json, report.md and PNG plots. Vectors are kept, so it may be stopped at any time: run it again
    and it goes on.
    """
    from lmk_embed.evaluation import Cutoffs, Model, Statistics, build, parse_systems, position_bias, read_dataset
    from lmk_embed.evaluation import evaluate as run
    from lmk_embed.evaluation.position import LENGTHS
    from lmk_embed.evaluation.systems import DEFAULT

    specs = parse_systems(system or DEFAULT)
    datasets = [read_dataset(folder) for folder in folders or ()]
    if queries is not None:
        datasets = [dataset.sample(queries, seed) for dataset in datasets]
    ours = Model(model, device=device, dtype=dtype)
    # A model may have positions for longer rows than its folder asks for: then all systems read alike.
    theirs = ours if base is None else Model(base, device=device, dtype=dtype).reading(ours.default.max_seq_length)
    if base is None and ours.default.config.landmark_trained and any(spec.kind != "landmark" for spec in specs):
        warnings.warn(
            "this model was trained with landmarks, which the other systems do not use; to compare with the model "
            "it was trained from, give that as --base",
            stacklevel=2,
        )
    vectors = cache or out / "vectors"
    for folder in (out, vectors):
        if folder.exists() and not folder.is_dir():
            raise ConfigError(f"{folder} is a file; --out and --cache name folders")
    systems = [build(spec, ours, theirs) for spec in specs]
    settings = {"model": ours.name, "base": theirs.name, "queries": queries, "dtype": dtype}
    try:
        report = (
            position_bias(
                systems,
                ours.count,
                lengths=lengths or LENGTHS,
                depths=depths,
                candidates=candidates,
                seed=seed,
                texts=[text for dataset in datasets for text in dataset.documents.values()] or None,
                cache_folder=vectors,
                settings=settings,
            )
            if position
            else run(
                datasets,
                systems,
                vectors,
                baseline=baseline,
                cutoffs=Cutoffs(k=k, budget=budget, gain=gain.value),
                statistics=Statistics(resamples=resamples, seed=seed),
                settings=settings,
            )
        )
    except KeyboardInterrupt:
        typer.echo(
            f"interrupted: vectors so far are kept in {vectors}; run the same command again to go on", err=True
        )
        raise typer.Exit(130) from None
    files = report.save(out)
    typer.echo(report.to_markdown(), nl=False)
    typer.echo(f"written: {', '.join(map(str, files))}", err=True)
