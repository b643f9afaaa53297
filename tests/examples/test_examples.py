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
        (
            "chroma_multi_vector",
            [
                "within 24 months, 35 per cent",
                "25 March 2029",
                "was made with the encoder",
                "17. Leaving the company",
            ],
        ),
        ("langchain_rag", ["within 24 months, 35 per cent", "handbook, characters"]),
        (
            "langchain_with_chroma",
            ["reviewed once, with effect from 25 March 2029", "the one that was added: True"],
        ),
        ("langchain_migration", ["Rent is due", "The end of a long text counts: True"]),
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


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("chroma_multi_vector", "'4.  RENT REVIEW'"),
        ("langchain_rag", "Nothing is repayable"),
        ("llama_index_query_engine", "within 24 months"),
        ("migration", "'num_added': 13"),
    ],
)
def test_notebooks(name: str, expected: str) -> None:
    notebook = nbformat.read(EXAMPLES / f"{name}.ipynb", as_version=4)
    place = {"metadata": {"path": EXAMPLES}}
    NotebookClient(notebook, timeout=180, kernel_name="python3", resources=place).execute()
    printed = "".join(
        output.get("text", "") + output.get("data", {}).get("text/plain", "")
        for cell in notebook.cells
        for output in cell.get("outputs", [])
    )
    assert expected in printed
