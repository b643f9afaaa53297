"""Which files are found: a fixed order, each once, and nothing left out silently but what is said to be."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lmk_embed.errors import ConfigError, MissingExtraError
from lmk_embed.files import NoSuchPathError, SkippedFile, kind_of, walk

unhurried = settings(deadline=None)  # slow machines are no failures


def tree(root: Path, *names: str) -> Path:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return root


def unexpected(skipped: SkippedFile) -> None:
    raise skipped


def found(
    *paths: Path, relative: Path, include: Iterable[str] = (), exclude: Iterable[str] = ()
) -> tuple[list[str], dict[str, str]]:
    """Names of the files that are read, and reasons of those that are not."""
    skipped: list[SkippedFile] = []
    names = [
        path.relative_to(relative).as_posix()
        for path in walk(paths, include=include, exclude=exclude, on_skip=skipped.append)
    ]
    return names, {skip.path.relative_to(relative).as_posix(): skip.reason for skip in skipped}


def test_order_is_by_name_and_depth_first(tmp_path: Path) -> None:
    tree(tmp_path, "b/z.md", "b/a/x.txt", "a.txt", "c.py", "b/a.txt", "Z.rst", "ä.html")
    assert found(tmp_path, relative=tmp_path) == (
        ["Z.rst", "a.txt", "b/a/x.txt", "b/a.txt", "b/z.md", "c.py", "ä.html"],
        {},
    )


def test_paths_keep_their_order_and_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree(tmp_path, "docs/a.txt", "docs/b.txt", "c.txt")
    monkeypatch.chdir(tmp_path)
    names = [str(path) for path in walk(["docs/b.txt", tmp_path / "c.txt", "docs"], on_skip=unexpected)]
    assert names == ["docs/b.txt", str(tmp_path / "c.txt"), "docs/a.txt"]


def test_hidden_and_generated_are_left_out_silently(tmp_path: Path) -> None:
    tree(
        tmp_path, ".git/a.txt", ".venv/a.py", ".hidden.txt", "node_modules/a.js", "b/__pycache__/a.py", "CVS/a.txt"
    )
    tree(tmp_path, "b/a.txt", "node_modules.md")
    assert found(tmp_path, relative=tmp_path) == (["b/a.txt", "node_modules.md"], {})


def test_hidden_folder_that_is_named_is_read(tmp_path: Path) -> None:
    tree(tmp_path, ".notes/a.txt", ".notes/.b.txt", "node_modules/c.txt")
    names, _ = found(tmp_path / ".notes", tmp_path / "node_modules", relative=tmp_path)
    assert names == [".notes/a.txt", "node_modules/c.txt"]


def test_other_kinds_are_reported(tmp_path: Path) -> None:
    tree(
        tmp_path,
        "a.png",
        "b.docx",
        "c.json",
        "d.csv",
        "e",
        "README",
        "Makefile",
        "id_rsa",
        "key.pem",
        "f.svg",
        "g.ts",
    )
    names, skipped = found(tmp_path, relative=tmp_path)
    assert names == ["Makefile", "README", "g.ts"]
    assert skipped == dict.fromkeys(
        ["a.png", "b.docx", "c.json", "d.csv", "e", "f.svg", "id_rsa", "key.pem"], "unsupported"
    )


def test_message_for_other_kinds_says_what_to_do(tmp_path: Path) -> None:
    tree(tmp_path, "c.json")
    skipped: list[SkippedFile] = []
    assert list(walk([tmp_path], on_skip=skipped.append)) == []
    assert str(skipped[0]).endswith(
        "c.json: files of the kind '.json' are not read; to read it as text, name the file itself"
    )


def test_named_file_is_read_whatever_its_suffix(tmp_path: Path) -> None:
    tree(tmp_path, "a.txt", "b.json", "c.png", ".d")
    names, skipped = found(tmp_path, tmp_path / "b.json", tmp_path / ".d", relative=tmp_path)
    assert names == ["a.txt", "b.json", ".d"]
    assert skipped == {"c.png": "unsupported"}


def test_every_file_comes_once(tmp_path: Path) -> None:
    tree(tmp_path, "a/b/x.txt", "a/y.txt")
    paths = [tmp_path / "a/b", tmp_path, tmp_path / "a/../a/y.txt", tmp_path / "a", tmp_path / "a/b/x.txt"]
    assert found(*paths, relative=tmp_path)[0] == ["a/b/x.txt", "a/y.txt"]


def test_links_to_files_give_way_to_the_file_itself(tmp_path: Path) -> None:
    tree(tmp_path, "in/b.txt", "out/c.txt")
    (tmp_path / "in/a.txt").symlink_to("b.txt")
    (tmp_path / "in/d.txt").symlink_to("../out/c.txt")
    (tmp_path / "in/e.txt").symlink_to("d.txt")
    (tmp_path / "in/f.txt").symlink_to("gone.txt")
    names, skipped = found(tmp_path / "in", relative=tmp_path)
    assert names == ["in/b.txt", "in/d.txt"]
    assert skipped == {"in/f.txt": "broken_link"}


def test_links_to_folders_are_reported_unless_the_folder_is_read(tmp_path: Path) -> None:
    tree(tmp_path, "in/a/b.txt", "out/c.txt", "in/.hidden/d.txt")
    (tmp_path / "in/a/up").symlink_to("..")
    (tmp_path / "in/a/self").symlink_to(".")
    (tmp_path / "in/same").symlink_to("a")
    (tmp_path / "in/out").symlink_to("../out")
    (tmp_path / "in/current").symlink_to(".hidden")
    (tmp_path / "in/loop").symlink_to("loop")
    names, skipped = found(tmp_path / "in", relative=tmp_path)
    assert names == ["in/a/b.txt"]
    assert skipped == {"in/current": "linked_folder", "in/out": "linked_folder", "in/loop": "broken_link"}
    assert found(tmp_path / "in/out", relative=tmp_path)[0] == ["in/out/c.txt"]
    names, skipped = found(tmp_path / "in", tmp_path / "out", relative=tmp_path)
    assert names == ["in/a/b.txt", "out/c.txt"]
    assert "in/out" not in skipped


def test_pipe_is_reported(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.txt")
    (tmp_path / "folder.txt").mkdir()
    tree(tmp_path, "folder.txt/a.txt")
    assert found(tmp_path, relative=tmp_path) == (["folder.txt/a.txt"], {"pipe.txt": "not_a_file"})
    assert found(tmp_path / "pipe.txt", relative=tmp_path) == ([], {"pipe.txt": "not_a_file"})


def test_folder_that_cannot_be_listed_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree(tmp_path, "a/x.txt", "b.txt")
    listing = Path.iterdir

    def denied(self: Path) -> Iterable[Path]:
        if self.name == "a":
            raise PermissionError(13, "Permission denied", str(self))
        return listing(self)

    monkeypatch.setattr(Path, "iterdir", denied)  # modes do not stop root, who may run this test
    assert found(tmp_path, relative=tmp_path) == (["b.txt"], {"a": "unreadable"})


def test_names(tmp_path: Path) -> None:
    tree(tmp_path, "Größe 東京 👩‍👧.txt", "e\u0301.txt", "new\nline.txt")
    assert found(tmp_path, relative=tmp_path) == (["Größe 東京 👩‍👧.txt", "e\u0301.txt", "new\nline.txt"], {})
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/K\xf6ln.txt")).write_text("a")
    skipped: list[SkippedFile] = []
    assert len(list(walk([tmp_path], on_skip=skipped.append))) == 3
    assert [skip.reason for skip in skipped] == ["bad_name"]
    assert str(skipped[0]).encode().endswith(b"K\\xf6ln.txt: its name is not valid Unicode; rename it")


def test_paths_that_do_not_exist_are_named_at_once(tmp_path: Path) -> None:
    tree(tmp_path, "a.txt")
    with pytest.raises(NoSuchPathError, match=r"no such file or folder: .*gone.*, .*lost.*'") as caught:
        walk([tmp_path, tmp_path / "gone", tmp_path / "lost"], on_skip=unexpected)
    assert isinstance(caught.value, FileNotFoundError)
    with pytest.raises(NoSuchPathError, match="''"):
        walk([""], on_skip=unexpected)


def test_broken_link_that_is_named_does_not_stop_the_others(tmp_path: Path) -> None:
    tree(tmp_path, "a.txt")
    (tmp_path / "b.txt").symlink_to("gone.txt")
    assert found(tmp_path / "b.txt", tmp_path / "a.txt", relative=tmp_path) == (
        ["a.txt"],
        {"b.txt": "broken_link"},
    )


# Patterns


@pytest.mark.parametrize(
    ("include", "exclude", "names"),
    [
        (["*.md"], [], ["drafts/b.md", "src/c.md"]),
        (["/src/"], [], ["src/c.md", "src/d.py", "src/old/e.py"]),
        (["src/*.py"], [], ["src/d.py"]),
        (["src/**/*.py"], [], ["src/d.py", "src/old/e.py"]),
        (["*.md", "!b.md"], [], ["src/c.md"]),
        ([], ["drafts/", "old"], ["a.txt", "src/c.md", "src/d.py"]),
        ([], ["*.md", "!c.md"], ["a.txt", "src/c.md", "src/d.py", "src/old/e.py"]),
        ([], ["src/*", "!src/c.md"], ["a.txt", "drafts/b.md", "src/c.md"]),
        (["*.md"], ["drafts"], ["src/c.md"]),
        (["nothing"], [], []),
        ([], ["# a comment", ""], ["a.txt", "drafts/b.md", "src/c.md", "src/d.py", "src/old/e.py"]),
    ],
)
def test_patterns_are_those_of_gitignore(
    tmp_path: Path, include: list[str], exclude: list[str], names: list[str]
) -> None:
    tree(tmp_path, "a.txt", "drafts/b.md", "src/c.md", "src/d.py", "src/old/e.py")
    assert found(tmp_path, relative=tmp_path, include=include, exclude=exclude) == (names, {})


def test_what_patterns_leave_out_is_not_reported(tmp_path: Path) -> None:
    tree(tmp_path, "a.txt", "b.png", "c.docx")
    assert found(tmp_path, relative=tmp_path, exclude=["*.png", "*.docx"]) == (["a.txt"], {})
    assert found(tmp_path, relative=tmp_path, include=["*.txt"]) == (["a.txt"], {})


def test_patterns_and_named_files(tmp_path: Path) -> None:
    tree(tmp_path, "docs/a.txt", "docs/b.md", "docs/c.json")
    named = [tmp_path / "docs", tmp_path / "docs/a.txt", tmp_path / "docs/c.json"]
    assert found(*named, relative=tmp_path, include=["*.md"])[0] == ["docs/a.txt", "docs/b.md", "docs/c.json"]
    assert found(*named, relative=tmp_path, exclude=["a.*"])[0] == ["docs/b.md", "docs/c.json"]


def test_excluded_folders_are_not_entered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree(tmp_path, "big/a.txt", "b.txt")
    listing = Path.iterdir

    def counted(self: Path) -> Iterable[Path]:
        assert self.name != "big"
        return listing(self)

    monkeypatch.setattr(Path, "iterdir", counted)
    assert found(tmp_path, relative=tmp_path, exclude=["big/"])[0] == ["b.txt"]


@pytest.mark.parametrize("name", ["paths", "include", "exclude"])
def test_single_strings_are_refused(tmp_path: Path, name: str) -> None:
    arguments: dict[str, list[str] | str] = {"paths": [str(tmp_path)], name: "*.md"}
    with pytest.raises(TypeError, match=f"{name} must be a list"):
        walk(**arguments, on_skip=unexpected)


def test_malformed_pattern_is_a_setting_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="exclude: "):
        walk([tmp_path], exclude=["!"], on_skip=unexpected)


def test_patterns_without_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pathspec", None)
    with pytest.raises(MissingExtraError, match=r"lmk-embed\[cli\]"):
        walk([tmp_path], include=["*.md"], on_skip=unexpected)


def test_folders_deeper_than_calls(tmp_path: Path) -> None:
    tree(tmp_path, "d/" * 300 + "a.txt")
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack()) + 200)
    try:
        names, _ = found(tmp_path, relative=tmp_path)
    finally:
        sys.setrecursionlimit(limit)
    assert names == ["d/" * 300 + "a.txt"]


@unhurried
@given(
    st.text(max_size=12).filter(lambda name: name not in ("", ".", "..") and "/" not in name and "\0" not in name)
)
def test_kind_of_any_name(name: str) -> None:
    assert kind_of(Path(name)) == kind_of(Path("folder") / name.upper().lower())
