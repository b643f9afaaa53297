"""What the package needs, and what it must not bring."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

INTEGRATIONS = Path(__file__).parents[2] / "integrations"


def test_the_namespace_belongs_to_llama_index() -> None:
    """A stray ``__init__`` would hide every other integration."""
    assert not (INTEGRATIONS / "llama_index" / "__init__.py").exists()
    assert not (INTEGRATIONS / "llama_index" / "embeddings" / "__init__.py").exists()


@pytest.mark.parametrize(
    ("package", "missing", "extra"),
    [
        ("llama_index.embeddings.lmk", "llama_index.core", "llama-index"),
        ("sentence_transformers_lmk", "sentence_transformers", "sentence-transformers"),
    ],
)
def test_a_missing_extra_is_named(package: str, missing: str, extra: str) -> None:
    code = f"import sys; sys.modules[{missing!r}] = None; import {package}"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert f'pip install "lmk-embed[{extra}]"' in ran.stderr
