"""The ``lmk`` command; says how to install what it needs when that is missing."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line."""
    try:
        from lmk_embed.cli import run
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] == "lmk_embed":
            raise
        from lmk_embed.errors import missing_extra

        sys.exit(f"error: {missing_extra(error.name or 'typer', 'cli')}")
    run()


if __name__ == "__main__":
    main()
