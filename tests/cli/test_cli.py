"""The command line as a person uses it: real files, a real database, and real processes where they are killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lmk_embed.__main__ import main

LIBRARY = Path(__file__).parents[2] / "examples" / "library"


@dataclass
class Result:
    """What one call of the command printed."""

    stdout: str
    stderr: str


Lmk = Callable[..., Result]


@pytest.fixture
def lmk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Lmk:
    """Run the command in an empty folder and return what it printed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)  # the command sets its own
    on_stop = signal.getsignal(signal.SIGTERM)

    def call(*args: object, code: int = 0) -> Result:
        monkeypatch.setattr(sys, "argv", ["lmk", *map(str, args)])
        capsys.readouterr()
        try:
            with pytest.raises(SystemExit) as stop:
                main()
        finally:
            signal.signal(signal.SIGTERM, on_stop)
        printed = Result(*capsys.readouterr())
        assert (stop.value.code or 0) == code, f"{stop.value.code}\n{printed.stdout}\n{printed.stderr}"
        return printed

    return call


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder of a few small documents of different kinds."""
    root = tmp_path / "docs"
    (root / "sub").mkdir(parents=True)
    (root / "lease.txt").write_text("The deposit is three months of rent.\nIt is kept in a separate account.\n")
    (root / "manual.md").write_text(
        "# Pump\n\nTighten the head screws to 6 Nm.\n\n## Errors\n\nE14 means too hot.\n"
    )
    (root / "sub" / "page.html").write_text("<html><body><h1>Report</h1><p>Nitrate &amp; <b>wells</b>.</p></body>")
    (root / "sub" / "tool.py").write_text('"""A tool."""\n\n\ndef run() -> int:\n    return 3\n')
    return root


def hits(result: Result) -> list[dict[str, Any]]:
    answer = json.loads(result.stdout)
    assert set(answer) == {"query", "hits"}
    found: list[dict[str, Any]] = answer["hits"]
    return found


def assert_exact(found: list[dict[str, Any]]) -> None:
    """Assert that every hit is the slice of its file that it says it is."""
    keys = {"path", "doc_id", "start", "end", "line_start", "line_end", "text", "score"}
    assert found
    for hit in found:
        assert set(hit) == keys
        content = Path(hit["path"]).read_text()
        assert content[hit["start"] : hit["end"]] == hit["text"]
        lines = content.split("\n")[hit["line_start"] - 1 : hit["line_end"]]
        assert hit["text"].split("\n")[0] in lines[0]
        assert hit["text"].split("\n")[-1] in lines[-1]


def test_index_search_and_index_again(lmk: Lmk, folder: Path, tiny_model: Path) -> None:
    first = lmk("index", folder, "--db", "db", "--model", tiny_model)
    assert "indexed 4 files (4 new, 0 changed), 0 unchanged, 0 removed" in first.stdout
    for per in ("chunk", "passage", "document"):
        found = hits(lmk("search", "How large is the deposit?", "--db", "db", "--json", "-k", 10, "--per", per))
        assert_exact(found)
        assert {Path(hit["path"]).name for hit in found} == {"lease.txt", "manual.md", "page.html", "tool.py"}
    again = lmk("index", folder, "--db", "db")
    assert "indexed 0 files (0 new, 0 changed), 4 unchanged, 0 removed" in again.stdout


def test_changes_are_replaced_exactly_and_pruned_on_request(lmk: Lmk, folder: Path, tiny_model: Path) -> None:
    lmk("index", folder, "--db", "db", "--model", tiny_model)
    (folder / "lease.txt").write_text("The notice period is now six weeks.\n")
    (folder / "manual.md").unlink()
    (folder / "new.txt").write_text("A brand new file.\n")
    kept = lmk("index", folder, "--db", "db")
    assert "indexed 2 files (1 new, 1 changed), 2 unchanged, 0 removed" in kept.stdout
    assert "1 indexed file not found any more; --prune removes them" in kept.stderr
    texts = [
        hit["text"] for hit in hits(lmk("search", "deposit", "--db", "db", "--json", "-k", 50, "--per", "chunk"))
    ]
    assert not any("deposit" in text for text in texts)
    assert any("head screws" in text for text in texts)
    pruned = lmk("index", folder, "--db", "db", "--prune")
    assert "indexed 0 files (0 new, 0 changed), 4 unchanged, 1 removed" in pruned.stdout
    assert_exact(hits(lmk("search", "head screws", "--db", "db", "--json", "-k", 50)))


def test_prune_leaves_other_folders_alone(lmk: Lmk, folder: Path, tiny_model: Path) -> None:
    lmk("index", folder, "--db", "db", "--model", tiny_model)
    (folder / "lease.txt").unlink()
    report = lmk("index", folder / "sub", "--db", "db", "--prune")
    assert "2 unchanged, 0 removed" in report.stdout


def test_prune_keeps_what_is_still_there(lmk: Lmk, folder: Path, tiny_model: Path) -> None:
    lmk("index", folder, "--db", "db", "--model", tiny_model)
    (folder / "lease.txt").write_bytes(b"now\x00binary")
    report = lmk("index", folder, "--db", "db", "--exclude", "*.md", "--prune")
    assert "2 unchanged, 0 removed" in report.stdout and "1 binary" in report.stderr


def test_prune_takes_a_folder_that_is_gone(lmk: Lmk, folder: Path, tiny_model: Path, tmp_path: Path) -> None:
    lmk("index", folder, "--db", "db", "--model", tiny_model)
    (folder / "sub").rename(tmp_path / "moved")
    assert "no such" in lmk("index", folder / "sub", "--db", "db", code=1).stderr.lower()
    assert "0 unchanged, 2 removed" in lmk("index", folder / "sub", "--db", "db", "--prune").stdout
    assert "no document of one" in lmk("index", "nowhere", "--db", "db", "--prune", code=1).stderr


def test_control_characters_do_not_reach_the_terminal(lmk: Lmk, tmp_path: Path, tiny_model: Path) -> None:
    (tmp_path / "odd\nname.txt").write_text("red \x1b[31m title \x1b]0;owned\x07 bell \x9b end\n")
    lmk("index", ".", "--db", "db", "--model", tiny_model)
    shown = lmk("search", "red", "--db", "db").stdout
    assert not any((character < " " and character != "\n") or "\x7f" <= character < "\xa0" for character in shown)
    assert "odd\u240aname.txt:1" in shown


def test_other_encodings_are_named(lmk: Lmk, tmp_path: Path, tiny_model: Path) -> None:
    (tmp_path / "u16.txt").write_text("Grüße aus Köln.\n", encoding="utf-16")
    lmk("index", "u16.txt", "--db", "db", "--model", tiny_model)
    (hit,) = hits(lmk("search", "Köln", "--db", "db", "--json"))
    text = Path(hit["path"]).read_text(encoding=hit["encoding"])
    assert text[hit["start"] : hit["end"]] == hit["text"] == "Grüße aus Köln."


def test_a_file_that_changed_after_indexing_is_said_to_be_stale(lmk: Lmk, folder: Path, tiny_model: Path) -> None:
    lmk("index", folder, "--db", "db", "--model", tiny_model)
    (folder / "lease.txt").write_text("Something else entirely.\n")
    found = hits(lmk("search", "deposit", "--db", "db", "--json", "-k", 10))
    (stale,) = [hit for hit in found if hit.get("stale")]
    assert Path(stale["path"]).name == "lease.txt" and stale["line_start"] is None
    assert "deposit" in stale["text"]
    shown = lmk("search", "deposit", "--db", "db", "-k", 10)
    assert "changed or gone since they were indexed" in shown.stderr


def test_people_see_file_lines_and_the_best_chunk(lmk: Lmk, tmp_path: Path, tiny_model: Path) -> None:
    text = "".join(f"Clause {i} says that item {i} costs {i * 7} pounds.\n" for i in range(40))
    (tmp_path / "long.txt").write_text(text)
    lmk("index", "long.txt", "--db", "db", "--model", tiny_model)
    shown = lmk("search", "What does item 30 cost?", "--db", "db", "-k", 1).stdout
    assert shown.startswith("1. long.txt:")
    assert "characters" in shown and "score" in shown
    assert "»" in shown and "«" in shown
    assert all(line in text for line in shown.replace("»", "").replace("«", "").split("\n   ")[1:-1])


def test_where_filters(lmk: Lmk, folder: Path, tiny_model: Path) -> None:
    lmk("index", folder, "--db", "db", "--model", tiny_model)
    by_kind = hits(lmk("search", "x", "--db", "db", "--json", "-k", 9, "--where", "kind=markdown"))
    assert {Path(hit["path"]).name for hit in by_kind} == {"manual.md"}
    either = '{"suffix": {"$in": [".py", ".txt"]}}'
    by_json = hits(lmk("search", "x", "--db", "db", "--json", "-k", 9, "--where", either))
    assert {Path(hit["path"]).name for hit in by_json} == {"tool.py", "lease.txt"}
    by_path = hits(lmk("search", "x", "--db", "db", "--json", "-k", 9, "--where", "path=docs/lease.txt"))
    assert {Path(hit["path"]).name for hit in by_path} == {"lease.txt"}
    for bad in ('{"kind": {"$foo": 1}}', '{"$and": []}', '{"kind": null}'):
        assert "no filter that Chroma takes" in lmk("search", "x", "--db", "db", "--where", bad, code=1).stderr
    assert "neither key=value nor" in lmk("search", "x", "--db", "db", "--where", "markdown", code=1).stderr


def test_info_of_a_database_and_of_a_model(lmk: Lmk, folder: Path, tiny_model: Path) -> None:
    lmk("index", folder, "--db", "db", "--model", tiny_model, "--granularity", 32)
    (facts,) = json.loads(lmk("info", "--db", "db", "--json").stdout)
    assert facts["documents"] == 4 and facts["chunks"] >= 4
    assert facts["dimension"] == 32 and facts["settings"]["granularity"] == 32
    assert facts["model"] == str(tiny_model)
    (model,) = json.loads(lmk("info", "--model", tiny_model, "--json").stdout)
    assert model["dimension"] == 32 and model["longest row"] == 512
    assert facts["fingerprint"] in lmk("info", "--db", "db").stdout


class TestErrorsSayWhatToDo:
    def test_no_such_path(self, lmk: Lmk, tmp_path: Path) -> None:
        assert "nowhere" in lmk("index", "nowhere", "--db", "db", code=1).stderr
        assert not (tmp_path / "db").exists()

    def test_nothing_to_index(self, lmk: Lmk, tmp_path: Path) -> None:
        (tmp_path / "pictures").mkdir()
        (tmp_path / "pictures" / "a.png").write_bytes(b"\x89PNG\x00")
        assert (
            "nothing to index in pictures: files seen: 1 unsupported"
            in lmk("index", "pictures", "--db", "db", code=1).stderr
        )
        assert not (tmp_path / "db").exists()

    def test_skipped_files_are_counted_and_strict_says_so(self, lmk: Lmk, folder: Path, tiny_model: Path) -> None:
        (folder / "broken.txt").write_bytes(b"abc\x00def")
        (folder / "blank.txt").write_text("  \n")
        report = lmk("index", folder, "--db", "db", "--model", tiny_model)
        assert "skipped 2 files: 1 binary, 1 empty" in report.stderr
        assert "broken.txt" in report.stderr
        lmk("index", folder, "--db", "db", "--strict", code=3)

    def test_no_database(self, lmk: Lmk, tmp_path: Path) -> None:
        assert "lmk index" in lmk("search", "x", "--db", "db", code=1).stderr
        assert "no database" in lmk("info", "--db", "db", code=1).stderr
        assert not (tmp_path / "db").exists()

    def test_database_path_is_a_file(self, lmk: Lmk, folder: Path, tiny_model: Path) -> None:
        place = folder / "lease.txt"
        assert "is a file" in lmk("index", folder, "--db", place, "--model", tiny_model, code=1).stderr
        assert "is a file" in lmk("search", "x", "--db", place, code=1).stderr

    def test_another_model_is_refused_and_rebuild_replaces(self, lmk: Lmk, folder: Path, tiny_model: Path) -> None:
        lmk("index", folder, "--db", "db", "--model", tiny_model)
        refused = lmk("index", folder, "--db", "db", "--model", tiny_model, "--granularity", 16, code=1)
        assert "--rebuild" in refused.stderr
        assert "4 unchanged" in lmk("index", folder, "--db", "db").stdout
        rebuilt = lmk("index", folder, "--db", "db", "--model", tiny_model, "--granularity", 16, "--rebuild")
        assert "indexed 4 files (4 new" in rebuilt.stdout
        same_again = lmk("index", folder, "--db", "db", "--rebuild")
        assert "indexed 4 files (4 new" in same_again.stdout
        (facts,) = json.loads(lmk("info", "--db", "db", "--json").stdout)
        assert facts["settings"]["granularity"] == 16

    def test_model_without_weights(self, lmk: Lmk, folder: Path, tmp_path: Path, tiny_model: Path) -> None:
        empty = tmp_path / "model"
        empty.mkdir()
        (empty / "config.json").write_text((tiny_model / "config.json").read_text())
        assert "has no weights" in lmk("index", folder, "--db", "db", "--model", empty, code=1).stderr
        assert "no model folder" in lmk("index", folder, "--db", "db", "--model", "./nope", code=1).stderr
        assert not (tmp_path / "db").exists()

    def test_model_that_moved_since(self, lmk: Lmk, folder: Path, tmp_path: Path, tiny_model: Path) -> None:
        copy = tmp_path / "copy"
        copy.mkdir()
        for file in tiny_model.iterdir():
            (copy / file.name).write_bytes(file.read_bytes())
        lmk("index", folder, "--db", "db", "--model", copy)
        copy.rename(tmp_path / "moved")
        assert "copy" in lmk("search", "x", "--db", "db", code=1).stderr
        assert "4 unchanged" in lmk("index", folder, "--db", "db", "--model", tmp_path / "moved").stdout

    def test_blank_question(self, lmk: Lmk, folder: Path, tiny_model: Path) -> None:
        lmk("index", folder, "--db", "db", "--model", tiny_model)
        assert "blank" in lmk("search", " ", "--db", "db", code=1).stderr

    def test_missing_extra(self) -> None:
        code = "import sys; sys.modules['typer'] = None\nfrom lmk_embed.__main__ import main\nmain()"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert done.returncode == 1
        assert 'pip install "lmk-embed[cli]"' in done.stderr and "Traceback" not in done.stderr


def start_index(folder: Path, cwd: Path, model: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "lmk_embed", "index", str(folder), "--db", "db", "--model", str(model)],
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def large_folder(tmp_path: Path) -> Path:
    root = tmp_path / "large"
    root.mkdir()
    for i in range(30):
        body = "".join(f"Entry {i}-{j} records {i * j} visitors at gate {j % 7}.\n" for j in range(600))
        (root / f"log{i:02}.txt").write_text(body)
    return root


def test_rows_that_a_stopped_run_left_over_are_removed_by_the_next(
    lmk: Lmk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is as the index has it, but the rows of its longer past are still there."""
    from chroma_lmk import LandmarkStore, StoreError
    from chroma_lmk.writer import Writer

    file = tmp_path / "note.txt"
    file.write_text("The deposit is three months of rent. " * 60)
    lmk("index", "note.txt", "--db", "db")
    file.write_text("The deposit is two months of rent.")

    def stop(*_: object) -> None:
        raise StoreError("stopped here")

    with monkeypatch.context() as stopped:
        stopped.setattr(Writer, "_finish", stop)
        lmk("index", "note.txt", "--db", "db", code=1)
    with LandmarkStore.open(tmp_path / "db") as store:
        assert not store.verify().ok
    lmk("index", "note.txt", "--db", "db")
    with LandmarkStore.open(tmp_path / "db") as store:
        assert store.verify().ok
        assert store.count() == 1
    assert "1 unchanged" in lmk("index", "note.txt", "--db", "db").stdout


@pytest.mark.parametrize("kill", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_interrupted_runs_finish_when_run_again(
    lmk: Lmk, large_folder: Path, tmp_path: Path, tiny_model: Path, kill: signal.Signals
) -> None:
    running = start_index(large_folder, tmp_path, tiny_model)
    database = tmp_path / "db" / "chroma.sqlite3"
    while not database.exists() or database.stat().st_size < 400_000:
        assert running.poll() is None, running.communicate()
        time.sleep(0.02)
    os.kill(running.pid, kill)
    _, err = running.communicate(timeout=60)
    if kill is not signal.SIGKILL:
        assert running.returncode == 130 and "run the same command again" in err and "Traceback" not in err
    lmk("index", large_folder, "--db", "db", "--model", tiny_model)
    assert "30 unchanged" in lmk("index", large_folder, "--db", "db").stdout
    (facts,) = json.loads(lmk("info", "--db", "db", "--json").stdout)
    assert facts["documents"] == 30
    found = hits(lmk("search", "Entry 29-599", "--db", "db", "--json", "-k", 40, "--per", "document"))
    assert len(found) == 30
    assert_exact(found)


def test_a_second_writer_is_refused_while_one_writes(
    lmk: Lmk, large_folder: Path, folder: Path, tmp_path: Path, tiny_model: Path
) -> None:
    running = start_index(large_folder, tmp_path, tiny_model)
    database = tmp_path / "db" / "chroma.sqlite3"
    while not database.exists() or database.stat().st_size < 400_000:
        assert running.poll() is None, running.communicate()
        time.sleep(0.02)
    os.kill(running.pid, signal.SIGSTOP)  # it holds the lock, and time stands still for it
    try:
        refused = lmk("index", folder, "--db", "db", "--model", tiny_model, code=1)
        assert "chroma run" in refused.stderr
    finally:
        os.kill(running.pid, signal.SIGCONT)
    running.communicate(timeout=120)
    assert running.returncode == 0


def test_the_example_library_with_the_bundled_model(lmk: Lmk) -> None:
    """The demo's promise: exact characters in every file kind, and the right answers on top."""
    lmk("index", LIBRARY, "--db", "db")
    questions = {
        "How much of a training course must I pay back if I resign eighteen months after it ended?": "35 per cent",
        "Why was the marquee given up, and what does the ice house cost?": "£52,800",
        "Welche Akkus dürfen im Gebäude nicht geladen werden?": "500 Wattstunden",
        "What caused the nitrate peak at LC-12?": "slurry lagoon",
        "To which torque are the head screws of a DM 340-110 with PVDF head tightened?": "10.5",
    }
    for question, answer in questions.items():
        found = hits(lmk("search", question, "--db", "db", "--json", "-k", 3))
        assert_exact(found)
        assert any(answer in hit["text"] for hit in found), question
    late = hits(lmk("search", next(iter(list(questions)[1:])), "--db", "db", "--json", "-k", 1))
    assert late[0]["start"] > 20_000, "far behind what the model reads in one piece"
    everything = hits(lmk("search", "borehole", "--db", "db", "--json", "-k", 5000, "--per", "chunk"))
    assert_exact(everything)
    assert not any("gwview-b7731" in hit["text"] for hit in everything if "script" not in hit["text"])
