"""The types that users see."""

from __future__ import annotations

from pathlib import Path

from mypy import api

ROOT = Path(__file__).parents[2]


def test_mypy_strict_accepts_calls_as_users_write_them() -> None:
    calls = Path(__file__).with_name("typed_calls.py")
    report, errors, status = api.run(["--config-file", str(ROOT / "pyproject.toml"), str(calls)])
    assert status == 0, report + errors
