"""Vectors on disk: nothing is encoded twice, nothing stale or damaged is used."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from evaluation.counting import Counting
from lmk_embed.evaluation import Dataset, cache
from lmk_embed.evaluation.cache import VectorCache

TEXTS = {f"d{i}": "x" * (40 + i) for i in range(6)}


def dataset(queries: Sequence[str] = ("how", "why so")) -> Dataset:
    names = {f"q{i}": text for i, text in enumerate(queries)}
    return Dataset("a set", TEXTS, names, {name: {"d0": 1} for name in names}, {})


@pytest.fixture(autouse=True)
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "GROUP", 80)  # two documents


def ignore(_: int) -> None:
    pass


def test_the_second_time_nothing_is_encoded(tmp_path: Path) -> None:
    first, second = Counting(), Counting()
    done: list[int] = []
    expected = VectorCache(tmp_path).corpus(dataset(), first, done.append)
    again = VectorCache(tmp_path).corpus(dataset(), second, ignore)
    assert first.documents == list(TEXTS.values()) and second.documents == []
    assert sum(done) == sum(map(len, TEXTS.values()))
    for field in ("counts", "spans", "chunks", "documents", "cut"):
        assert np.array_equal(getattr(expected, field), getattr(again, field))
    assert again.seconds == 1.5, "three groups of half a second when they were encoded"
    queries = VectorCache(tmp_path).queries(dataset(), first)
    assert np.array_equal(VectorCache(tmp_path).queries(dataset(), second), queries)
    assert second.queries == []


def test_an_interrupted_run_goes_on_where_it_was(tmp_path: Path) -> None:
    stopped = Counting()
    stopped.stop_at = TEXTS["d4"]
    with pytest.raises(KeyboardInterrupt):
        VectorCache(tmp_path).corpus(dataset(), stopped, ignore)
    resumed = Counting()
    found = VectorCache(tmp_path).corpus(dataset(), resumed, ignore)
    assert resumed.documents == [TEXTS["d4"], TEXTS["d5"]]
    assert found.documents[:, 0].tolist() == [len(text) for text in TEXTS.values()]


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "other", "pickle"])
def test_a_damaged_file_is_computed_again(tmp_path: Path, damage: str) -> None:
    expected = VectorCache(tmp_path).corpus(dataset(), Counting(), ignore)
    VectorCache(tmp_path).queries(dataset(), Counting())
    for path in [*tmp_path.rglob("documents-00001.npz"), *tmp_path.rglob("queries-*.npz")]:
        raw = path.read_bytes()
        if damage == "cut":
            path.write_bytes(raw[:-40])
        elif damage == "flipped":
            at = len(raw) // 2
            path.write_bytes(raw[:at] + bytes([raw[at] ^ 0xFF]) + raw[at + 1 :])
        elif damage == "empty":
            path.write_bytes(b"")
        elif damage == "other":
            np.savez(path, vectors=np.zeros((9, 2)), counts=np.zeros(9))
        else:
            np.save(path.open("wb"), np.array([{"a": 1}], dtype=object), allow_pickle=True)
    again = Counting()
    found = VectorCache(tmp_path).corpus(dataset(), again, ignore)
    assert np.array_equal(found.chunks, expected.chunks)
    assert set(again.documents) <= {TEXTS["d2"], TEXTS["d3"]}
    assert VectorCache(tmp_path).queries(dataset(), again)[:, 0].tolist() == [3, 6]
    if damage != "flipped":  # a flipped byte may lie in padding that no array reads
        assert again.documents == [TEXTS["d2"], TEXTS["d3"]] and again.queries == ["how", "why so"]
    assert not list(tmp_path.rglob(".*")), "no scratch files are left"


def test_other_content_or_another_system_is_not_confused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    VectorCache(tmp_path).corpus(dataset(), Counting(), ignore)
    VectorCache(tmp_path).queries(dataset(), Counting())
    other_key = Counting("other")
    VectorCache(tmp_path).corpus(dataset(), other_key, ignore)
    assert len(other_key.documents) == 6
    same = Counting()
    VectorCache(tmp_path).queries(dataset(["how"]), same)
    assert same.queries == ["how"]
    monkeypatch.setitem(TEXTS, "d5", "changed")
    changed = Counting()
    VectorCache(tmp_path).corpus(dataset(), changed, ignore)
    assert len(changed.documents) == 6


def test_without_a_folder_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    embedder = Counting()
    for _ in range(2):
        VectorCache(None).corpus(dataset(), embedder, ignore)
        VectorCache(None).queries(dataset(), embedder)
    assert len(embedder.documents) == 12 and not list(tmp_path.iterdir())
