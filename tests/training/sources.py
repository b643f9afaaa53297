"""Text to train on."""

from __future__ import annotations

import json
from pathlib import Path

SUBJECTS = ("The tenant", "A landlord", "The boiler", "Our meeting", "This contract", "Every report")
VERBS = ("pays for", "describes", "repairs", "follows", "replaces", "contains")
OBJECTS = ("the garden", "three rooms", "an old pump", "the annual budget", "a list of keys", "the second chapter")


def document(number: int, sentences: int) -> str:
    """Return some sentences, in two paragraphs."""
    lines = [
        f"{SUBJECTS[(number + i) % 6]} {VERBS[(number * 5 + i * 7) % 6]} {OBJECTS[(i + number) % 6]} in year {i}."
        for i in range(sentences)
    ]
    half = sentences // 2
    return " ".join(lines[:half]) + "\n\n" + " ".join(lines[half:])


def write_texts(folder: Path, count: int = 8, sentences: int = 60) -> Path:
    """Write rows of long texts."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = [{"text": document(n, sentences), "source": "houses"} for n in range(count)]
    (folder / "part.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def write_questions(folder: Path) -> Path:
    """Write rows of questions."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = [{"query": f"Who {verb} {thing}?", "source": "houses"} for verb in VERBS for thing in OBJECTS]
    (folder / "questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder
