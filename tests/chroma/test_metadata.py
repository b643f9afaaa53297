"""Case 25: metadata comes back with its values and types, or one error names everything that would not."""

import datetime
import enum
import math
from collections import OrderedDict

import numpy as np
import pytest
from chroma_fakes import FakeEncoder
from hypothesis import example, given, settings
from hypothesis import strategies as st

from chroma_lmk import LandmarkStore, MetadataError
from chroma_lmk.metadata import decode, encode
from lmk_embed.results import Document


def same(left: object, right: object) -> bool:
    """Equal in value and type, all the way down; also the sign of zero."""
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, float):
        return left == right and math.copysign(1, left) == math.copysign(1, right)
    return left == right


class Color(enum.StrEnum):
    RED = "red"


def test_case_25_every_bad_key_is_listed_before_anything_is_embedded(
    store: LandmarkStore, encoder: FakeEncoder
) -> None:
    bad = {
        "a": None,
        "tags": ["x", "y"],
        "n": np.int64(3),
        "f": np.float32(0.5),
        "t": (1, 2),
        "nest": {"p": 1},
        "big": 2**63,
        "when": datetime.datetime(2026, 1, 1),
        "chunk_index": "mine",
    }
    more = {"lmk:doc": "x", 3: "x", "nan": math.nan, "color": Color.RED, "deep": [{"set": {1}}]}
    with pytest.raises(MetadataError) as caught:
        store.add(
            [Document("first", "text", bad), Document("fine", "text", {"k": 1}), Document("second", "text", more)]
        )
    problems = caught.value.problems
    assert [problem.split(",")[0] for problem in problems] == ["document 'first'"] * 4 + ["document 'second'"] * 5
    message = str(caught.value)
    assert "9 metadata value(s)" in message
    for part in (
        "'n': numpy.int64 (use .tolist())",
        "'f': numpy.float32 (use .tolist())",
        "'t': tuple (use a list)",
        "'when': datetime.datetime (use .isoformat())",
        "'lmk:doc': keys that begin with 'lmk:'",
        "3: key of type int",
        "'nan': float nan (use None)",
        "test_metadata.Color",
        "'deep': list with dict with set (use a list)",
    ):
        assert part in message
    assert encoder.embedded == []
    assert store.collection is None


def test_case_25_what_json_can_hold_comes_back(store: LandmarkStore) -> None:
    metadata = {
        "a": None,
        "tags": ["x", "y"],
        "nest": {"p": 1, "q": [None, 1.5, {"r": []}]},
        "big": 2**63,
        "huge": -(10**40),
        "empty": [],
        "mixed": [1, 2.0, "x", True],
        "chunk_index": "mine",
        "flags": [True, False],
        "one": 1,
        "yes": True,
        "real": 1.0,
        "minus": -0.0,
        "ulp": [0.1 + 0.2, 1e-300],
        "": "no name",
        "#hash": 1,
        "$dollar": 1,
        "chroma:x": 1,
        "é\0": "é\0",
    }
    store.add([Document("d", "some text", metadata), Document("e", "other text")])
    assert same(dict(store.get(["d"])[0].metadata), metadata)
    for per in ("chunk", "passage", "document"):
        hits = {hit.doc_id: hit for hit in store.search("some text", per=per)}
        assert same(hits["d"].metadata, metadata)
        assert hits["e"].metadata == {}


def test_case_25_empty_and_missing_metadata_are_the_same(store: LandmarkStore) -> None:
    store.add([Document("a", "text", {}), Document("b", "text", None), Document("c", "text")])
    assert [document.metadata for document in store.get("abc"[i] for i in range(3))] == [{}, {}, {}]


def test_case_25_filters_see_the_callers_keys(store: LandmarkStore) -> None:
    store.add(
        [
            Document("a", "same text", {"tags": ["x", "y"], "year": 2025, "ratio": 0.1234567890123456789}),
            Document("b", "same text", {"tags": ["y"], "year": 2026, "none": None}),
        ]
    )

    def found(where: dict) -> list[str]:
        return [hit.doc_id for hit in store.search("same text", where=where)]

    assert found({"tags": {"$contains": "x"}}) == ["a"]
    assert found({"tags": {"$contains": "y"}}) == ["a", "b"]
    assert found({"year": 2026}) == ["b"]
    assert found({"$and": [{"year": {"$gte": 2025}}, {"ratio": {"$gt": 0.12}}]}) == ["a"]
    assert found({"none": ""}) == []
    assert found({"lmk:doc": {"$in": ["b", "c"]}}) == ["b"]
    assert found({}) == ["a", "b"]


def test_the_callers_mapping_is_not_changed(local_store: LandmarkStore) -> None:
    metadata = OrderedDict(x=[1], y=None)
    local_store.add([Document("d", "text", metadata)])
    assert metadata == OrderedDict(x=[1], y=None)


def test_many_problems_are_counted_but_not_all_shown(local_store: LandmarkStore) -> None:
    with pytest.raises(MetadataError, match=r"(?s)100 metadata value.*and 80 more") as caught:
        local_store.add([Document(str(number), "x", {"bad": ()}) for number in range(100)])
    assert len(caught.value.problems) == 100


def test_endless_metadata_is_a_problem_not_a_crash() -> None:
    endless: list = []
    endless.append(endless)
    assert "nested deeper" in encode({"x": endless})[1][0]
    assert "int too large" in encode({"x": 10**10_000})[1][0]


text = st.text(st.characters(codec="utf-8"), max_size=8)
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | text
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=3), max_leaves=8
)
metadata_of = st.dictionaries(text.filter(lambda key: not key.startswith("lmk:")), values, max_size=6)


@settings(max_examples=40, deadline=None)
@given(st.lists(metadata_of, min_size=1, max_size=8))
@example(
    [{"x": 0.1 + 0.2}, {"x": -0.0}, {"x": 5e-324}, {"x": [1.7976931348623157e308]}, {"x": 9007199254740993.0}]
)
def test_any_metadata_comes_back(shared_store: LandmarkStore, several: list[dict]) -> None:
    documents = [Document(str(number), f"text {number}", each) for number, each in enumerate(several)]
    shared_store.add(documents)
    for back in shared_store.get([document.id for document in documents]):
        assert same(dict(back.metadata), dict(documents[int(back.id)].metadata))


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_floats_are_carried_unless_any_parser_reads_them_exactly(value: float) -> None:
    stored, _ = encode({"x": value})
    assert same(decode(stored), {"x": value})
    assert stored["x"] == value
