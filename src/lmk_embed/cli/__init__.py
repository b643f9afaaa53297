"""The command line ``lmk``; the work of each command is in the modules beside."""

from __future__ import annotations

import json
import signal
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lmk_embed.cli.benchmarking import benchmark
from lmk_embed.cli.distilling import distill
from lmk_embed.cli.evaluating import evaluate
from lmk_embed.cli.options import Boundaries, Per, parse_where, settings_of
from lmk_embed.cli.training import mine, train
from lmk_embed.errors import LandmarkError, missing_extra

if TYPE_CHECKING:
    from chroma_lmk import LandmarkStore
    from lmk_embed import LandmarkEncoder

app = typer.Typer(
    name="lmk",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

#: Exit codes: an error; ``--strict`` and something was skipped; interrupted (as shells count SIGINT).
FAILED, SKIPPED, INTERRUPTED = 1, 3, 130

Database = Annotated[
    Path, typer.Option("--db", metavar="DIR", envvar="LMK_DB", help="Folder of the database.", show_default=False)
]
CollectionName = Annotated[str, typer.Option("--collection", help="Name of the collection in the database.")]
Model = Annotated[
    str | None, typer.Option("--model", help="Folder or hub id; the bundled model by default.", show_default=False)
]
Device = Annotated[
    str | None, typer.Option("--device", help='Such as "cpu" or "cuda:0"; found by itself.', show_default=False)
]


def _show_version(wanted: bool) -> None:
    if wanted:
        from lmk_embed import __version__

        typer.echo(f"lmk-embed {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Index folders of long documents, and find the passages that answer a question."""


@app.command()
def index(
    paths: Annotated[list[Path], typer.Argument(metavar="PATH", help="Files and folders.", show_default=False)],
    db: Database,
    collection: CollectionName = "lmk",
    model: Model = None,
    granularity: Annotated[
        int | None, typer.Option(help="Most tokens of a chunk.", show_default="64, or what the db has")
    ] = None,
    boundaries: Annotated[
        Boundaries | None, typer.Option(help="Where chunks may end.", show_default="sentence, or what the db has")
    ] = None,
    include: Annotated[
        list[str] | None, typer.Option(help="Only files that match, as in .gitignore; may be repeated.")
    ] = None,
    exclude: Annotated[
        list[str] | None, typer.Option(help="No files that match, as in .gitignore; may be repeated.")
    ] = None,
    encoding: Annotated[
        str | None, typer.Option(help="Of files that are neither UTF-8 nor say what they are, such as cp1252.")
    ] = None,
    prune: Annotated[bool, typer.Option("--prune", help="Remove documents whose files are gone.")] = False,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Delete the collection first; needed for another model.")
    ] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with code 3 if any file was skipped.")] = False,
    device: Device = None,
) -> None:
    """Index text, Markdown, reStructuredText, HTML, source code and PDF files; run again after changes.

    Unchanged files are skipped, changed ones replaced exactly. It may be stopped at any time: run it again and it
    finishes.
    """
    from lmk_embed.cli.indexing import Selection, find_files, index_files
    from lmk_embed.cli.render import show_report

    selection = Selection(tuple(paths), tuple(include or ()), tuple(exclude or ()), encoding)
    found = find_files(selection, missing_ok=prune)
    known_before = (db / "chroma.sqlite3").exists() and not rebuild
    if not found.paths and not (prune and known_before):
        found.refuse()
    asked = settings_of(model=model, granularity=granularity, boundaries=boundaries)
    with _store_for_writing(db, collection, asked, device, rebuild=rebuild) as store:
        store.lock()
        report = index_files(store, found, prune=prune)
    show_report(report)
    if report.interrupted:
        raise typer.Exit(INTERRUPTED)
    if strict and report.skipped:
        raise typer.Exit(SKIPPED)


@app.command()
def search(
    question: Annotated[str, typer.Argument(help="What to look for.", show_default=False)],
    db: Database,
    collection: CollectionName = "lmk",
    k: Annotated[int, typer.Option("-k", min=1, help="How many hits.")] = 5,
    per: Annotated[Per, typer.Option(help="What a hit is.")] = Per.passage,
    where: Annotated[
        list[str] | None,
        typer.Option(
            help="key=value, or a Chroma filter as JSON. Keys: path, name, suffix, kind, sha256. May be repeated."
        ),
    ] = None,
    min_score: Annotated[float | None, typer.Option(help="Leave out hits below this cosine.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    device: Device = None,
) -> None:
    """Find the passages that answer a question, with file, lines and exact characters."""
    from chroma_lmk import LandmarkStore
    from lmk_embed.cli.answers import locate
    from lmk_embed.cli.render import show_answers

    conditions = parse_where(where or [])
    with LandmarkStore.open(db, collection, load_encoder=_loader(device)) as store:
        hits = store.search(question, k, per=per.value, where=conditions, min_score=min_score)
        answers = locate(hits)
        empty = not hits and not store.count()
    if as_json:
        typer.echo(json.dumps({"query": question, "hits": [answer.to_dict() for answer in answers]}, indent=2))
        return
    show_answers(answers, collection_is_empty=empty)


@app.command()
def info(
    db: Annotated[
        Path | None, typer.Option("--db", metavar="DIR", envvar="LMK_DB", help="Describe this database.")
    ] = None,
    collection: Annotated[str | None, typer.Option(help="Only this collection.", show_default="all")] = None,
    model: Model = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Describe a database (documents, chunks, model, settings), or without one a model."""
    from lmk_embed.cli.render import show_facts

    facts = _model_facts(model) if db is None else _database_facts(db, collection)
    if as_json:
        typer.echo(json.dumps(facts, indent=2))
        return
    for group in facts:
        show_facts(group)


app.command(name="eval")(evaluate)
app.command()(benchmark)
app.command()(distill)
app.command()(train)
app.command()(mine)


def _model_facts(model: str | None) -> list[dict[str, Any]]:
    encoder = _load_encoder(settings_of(model=model), None)
    return [
        {
            "model": model or "bundled default",
            "dimension": encoder.dimension,
            "longest row": encoder.max_seq_length,
            "fingerprint": encoder.fingerprint,
            "settings": encoder.config.to_dict(),
        }
    ]


def _database_facts(db: Path, collection: str | None) -> list[dict[str, Any]]:
    from chroma_lmk import StoreError, StoreNotFoundError, list_stores, store_counts

    stores = [store for store in list_stores(db) if collection in (None, store.collection)]
    if not stores:
        name = "no collection made by lmk" if collection is None else f"no collection {collection!r}"
        raise StoreNotFoundError(f"{db} holds {name}; make one with: lmk index PATH --db {db}")
    facts = []
    for store in stores:
        try:
            documents, chunks = store_counts(db, store.collection)
        except StoreError as error:
            raise StoreError(f"collection {store.collection!r} in {db}: {error}") from error
        facts.append(
            {
                "database": str(db),
                "collection": store.collection,
                "documents": documents,
                "chunks": chunks,
                "model": store.encoder.get("model") or "bundled default",
                "dimension": store.dimension,
                "fingerprint": store.fingerprint,
                "settings": store.encoder.get("config", {}),
            }
        )
    return facts


def _store_for_writing(
    db: Path, collection: str, asked: dict[str, Any], device: str | None, *, rebuild: bool
) -> LandmarkStore:
    """Open the collection with the model it remembers, or with the model that was asked for."""
    from chroma_lmk import LandmarkStore, drop_store, list_stores, refuse_second_writer

    refuse_second_writer(db)
    exists = (db / "chroma.sqlite3").exists()
    stored = [store for store in list_stores(db) if store.collection == collection] if exists else []
    if stored and not asked and not rebuild:
        return LandmarkStore.open(db, collection, load_encoder=_loader(device))
    recipe = stored[0].encoder if stored and not asked else {}
    encoder = _loader(device)(recipe) if recipe else _load_encoder(asked, device)
    _ = encoder.fingerprint  # a model that does not load is found out before anything is deleted or created
    if rebuild and stored:
        drop_store(db, collection)
    return LandmarkStore(db, collection, encoder)


def _load_encoder(asked: dict[str, Any], device: str | None) -> LandmarkEncoder:
    from lmk_embed import LandmarkEncoder

    return LandmarkEncoder.from_pretrained(device=device, **asked)


def _loader(device: str | None) -> Any:
    from lmk_embed import LandmarkEncoder

    return lambda recipe: LandmarkEncoder.from_dict({**recipe, "device": device})


def run() -> None:
    """Run a command; errors that a person can act on become one line and an exit code."""
    warnings.showwarning = lambda message, *_args, **_kwargs: typer.echo(f"warning: {message}", err=True)
    try:
        # A service that is stopped ends like one that is interrupted: what is embedded is written first.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        app()
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] in ("lmk_embed", "chroma_lmk"):
            raise
        typer.echo(f"error: {missing_extra(error.name or 'a package', 'cli')}", err=True)
        sys.exit(FAILED)
    except LandmarkError as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(FAILED)
    except OSError as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(FAILED)
    except KeyboardInterrupt:
        typer.echo("interrupted", err=True)
        sys.exit(INTERRUPTED)
