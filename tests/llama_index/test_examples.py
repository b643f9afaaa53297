"""The examples run as they are, with the bundled model and the example library."""

from __future__ import annotations

import runpy
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("llama_index_query_engine", ["within 24 months, 35 per cent", "handbook, characters"]),
        ("llama_index_ingestion", ["then 0 for the same file", "lease-contract.txt, characters"]),
        ("llama_index_migration", ["Rent is due", "The end of a long text counts: True"]),
    ],
)
def test_scripts(name: str, expected: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    printed = capsys.readouterr().out
    for text in expected:
        assert text in printed


def test_the_notebook() -> None:
    notebook = nbformat.read(EXAMPLES / "llama_index_query_engine.ipynb", as_version=4)
    NotebookClient(
        notebook, timeout=180, kernel_name="python3", resources={"metadata": {"path": EXAMPLES}}
    ).execute()
    printed = "".join(output.get("text", "") for cell in notebook.cells for output in cell.get("outputs", []))
    assert "within 24 months" in printed
