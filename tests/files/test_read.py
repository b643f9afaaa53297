"""Reading one file: the contract of positions, lines and pages, and every way in which it cannot be read."""

from __future__ import annotations

import builtins
import hashlib
import os
import pickle
import socket
import sys
import zlib
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lmk_embed.errors import MissingExtraError, SpanError
from lmk_embed.files import SkippedFile, SourceText, load, read
from lmk_embed.files.pdf import PAGE_BREAK

unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def pdf(*pages: str | None) -> bytes:
    """A minimal PDF, a line of text (or none) on each page."""
    objects = ["<< /Type /Catalog /Pages 2 0 R >>", "", "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"]
    kids = []
    for page in pages:
        content = f"BT /F1 12 Tf 72 720 Td ({page}) Tj ET" if page is not None else ""
        objects.append(f"<< /Length {len(content)} >>\nstream\n{content}\nendstream")
        resources = f"/Resources << /Font << /F1 3 0 R >> >> /Contents {len(objects)} 0 R"
        objects.append(f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] {resources} >>")
        kids.append(f"{len(objects)} 0 R")
    objects[1] = f"<< /Type /Pages /Kids [{' '.join(kids)}] /Count {len(kids)} >>"
    body, offsets = "%PDF-1.4\n", []
    for number, content in enumerate(objects, 1):
        offsets.append(len(body))
        body += f"{number} 0 obj\n{content}\nendobj\n"
    table = "".join(f"{offset:010} 00000 n \n" for offset in offsets)
    size = len(objects) + 1
    trailer = f"trailer\n<< /Size {size} /Root 1 0 R >>\nstartxref\n{len(body)}\n%%EOF\n"
    return f"{body}xref\n0 {size}\n0000000000 65535 f \n{table}{trailer}".encode()


# Text


@unhurried
@given(st.text("abä東👩 \r\n\ufeff"), st.sampled_from([".txt", ".md", ".py", ".rst", ".unknown"]), st.data())
def test_spans_of_text_are_those_of_open(tmp_path: Path, text: str, suffix: str, data: st.DataObject) -> None:
    path = tmp_path / f"a{suffix}"
    path.write_bytes(text.encode())
    source = read(path)
    start = data.draw(st.integers(0, len(source.text)))
    end = data.draw(st.integers(start, len(source.text)))
    with path.open(encoding="utf-8") as file:
        content = file.read()
    assert source.to_file_span(start, end) == (start, end)
    assert source.text[start:end] == source.file_text[start:end] == content[start:end]


@unhurried
@given(pieces=st.lists(st.sampled_from(["Größe ", "&auml;", "<p>\r\n", "<b>x</b>", "\r", "\r\n  ", "東京", "&"])))
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_spans_of_html_are_those_of_open(tmp_path: Path, encoding: str, pieces: list[str]) -> None:
    path = tmp_path / "a.html"
    path.write_bytes("".join(pieces).encode(encoding))
    source = read(path)
    content = path.read_text(encoding=source.encoding)
    assert source.file_text == content
    for word in ("Größe", "東京", "x"):
        at = source.text.find(word)
        if at >= 0:
            start, end = source.to_file_span(at, at + len(word))
            assert content[start:end] == word


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("a.txt", "text"),
        ("B.MD", "markdown"),
        ("c.rst", "rst"),
        ("d.XHTML", "html"),
        ("e.py", "code"),
        ("f.bin", "text"),
    ],
)
def test_kind_encoding_and_digest(tmp_path: Path, name: str, kind: str) -> None:
    path = tmp_path / name
    path.write_bytes(b"abc\r\n")
    source = read(path)
    assert (source.path, source.kind, source.encoding) == (path, kind, "utf-8")
    assert source.digest == hashlib.sha256(b"abc\r\n").hexdigest()
    assert source.page(0) is None


def test_bytes_are_read_once_and_parsed_on_request(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("one")
    raw = load(str(path))
    path.unlink()
    assert raw.parse().text == "one"
    assert raw.digest == raw.parse().digest


@pytest.mark.parametrize("name", ["a.txt", "a.md", "a.html", "a.py"])
def test_empty_file(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.touch()
    source = read(path)
    assert source.text == source.file_text == ""
    assert source.to_file_span(0, 0) == (0, 0)
    assert source.lines(0, 0) == (1, 1)


def test_file_of_two_megabytes(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    lines = [f"line {number}: Größe\r\n" for number in range(1, 100_001)]
    path.write_bytes("".join(lines).encode())
    source = read(path)
    start = source.text.index("line 77777:")
    assert source.lines(start, start + 5) == (77777, 77777)
    assert source.lines(0, len(source.file_text)) == (1, 100_000)


def test_fallback_encoding(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("El señor Núñez pidió más información.", encoding="cp1252")
    with pytest.raises(SkippedFile):
        read(path)
    assert read(path, fallback_encoding="cp1252").text == path.read_text(encoding="cp1252")


# Lines


@unhurried
@given(st.text("ab\n", max_size=30), st.data())
def test_lines_count_line_feeds(text: str, data: st.DataObject) -> None:
    source = SourceText(Path("a"), "text", text, text, "utf-8", digest="")
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    first, last = source.lines(start, end)
    assert first == text[:start].count("\n") + 1
    assert last == first + text[start : max(start, end - 1)].count("\n")


@pytest.mark.parametrize("span", [(-1, 1), (2, 1), (0, 4), (4, 4)])
def test_spans_outside_the_text_are_errors(span: tuple[int, int]) -> None:
    source = SourceText(Path("a"), "text", "abc", "abc", "utf-8", digest="")
    with pytest.raises(SpanError, match="3 characters"):
        source.lines(*span)
    with pytest.raises(SpanError, match="3 characters"):
        source.to_file_span(*span)


# PDF


def test_pdf(tmp_path: Path) -> None:
    path = tmp_path / "a.pdf"
    path.write_bytes(pdf("First page", None, "Third page"))
    source = read(path)
    assert source.text == source.file_text == f"First page{PAGE_BREAK}{PAGE_BREAK}Third page"
    assert (source.kind, source.encoding) == ("pdf", None)
    start = source.text.index("Third")
    assert source.to_file_span(start, start + 5) == (start, start + 5)
    assert [source.page(position) for position in (0, 9, 11, 12, 13, start, len(source.text))] == [
        1,
        1,
        1,
        2,
        2,
        3,
        3,
    ]
    assert source.lines(start, start + 5) == (3, 3)


def test_pdf_without_text(tmp_path: Path) -> None:
    path = tmp_path / "scan.pdf"
    path.write_bytes(pdf(None, None))
    with pytest.raises(SkippedFile, match=r"2 pages without text.*ocrmypdf") as caught:
        read(path)
    assert caught.value.reason == "no_text"


@pytest.mark.parametrize("password", ["secret", ""])
def test_encrypted_pdf(tmp_path: Path, password: str) -> None:
    import pypdf

    path = tmp_path / "a.pdf"
    path.write_bytes(pdf("Secret text"))
    writer = pypdf.PdfWriter(clone_from=path)
    writer.encrypt(user_password=password, owner_password="owner", algorithm="RC4-128")
    writer.write(path)
    if password:
        with pytest.raises(SkippedFile, match="password") as caught:
            read(path)
        assert caught.value.reason == "encrypted"
    else:  # restricts printing or copying only; everybody can read it
        assert read(path).text == "Secret text"


@pytest.mark.parametrize("data", [b"", b"no PDF", b"%PDF-1.4\n", pdf("a")[:200], zlib.compress(pdf("a"))])
def test_broken_pdf(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "a.pdf"
    path.write_bytes(data)
    with pytest.raises(SkippedFile) as caught:
        read(path)
    assert caught.value.reason == "malformed"


def test_pdf_without_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.pdf"
    path.write_bytes(pdf("a"))
    monkeypatch.setitem(sys.modules, "pypdf", None)
    with pytest.raises(MissingExtraError, match=r"lmk-embed\[pdf\]"):
        read(path)


def test_reading_text_does_not_import_pypdf(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    original = builtins.__import__

    def guarded(name: str, globals: Mapping[str, object] | None = None, *args: object) -> object:
        assert name.partition(".")[0] not in ("pypdf", "pathspec", "charset_normalizer")
        return original(name, globals, *args)  # type: ignore[arg-type]

    path = tmp_path / "a.txt"
    path.write_text("a")
    monkeypatch.setattr(builtins, "__import__", guarded)
    assert read(path).text == "a"


# What cannot be read


def test_too_large(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(bytes(2000))
    with pytest.raises(SkippedFile, match=r"2,000 bytes, more than the limit of 1,999") as caught:
        load(path, max_bytes=1999)
    assert caught.value.reason == "too_large"
    assert len(load(path, max_bytes=2000).data) == 2000


def test_pipe_does_not_hang(tmp_path: Path) -> None:
    path = tmp_path / "pipe.txt"
    os.mkfifo(path)
    with pytest.raises(SkippedFile, match="not a file but a pipe") as caught:
        read(path)
    assert caught.value.reason == "not_a_file"


def test_folder_socket_and_device_are_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "folder.txt").mkdir()
    monkeypatch.chdir(tmp_path)  # the name of a socket must be short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("s.txt")
        for path, what in (("folder.txt", "a folder"), ("s.txt", "a socket"), (os.devnull, "a device")):
            with pytest.raises(SkippedFile, match=f"not a file but {what}"):
                read(path)


def test_links(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a")
    (tmp_path / "good.txt").symlink_to("a.txt")
    (tmp_path / "broken.txt").symlink_to("gone.txt")
    (tmp_path / "loop.txt").symlink_to("loop.txt")
    assert read(tmp_path / "good.txt").text == "a"
    for name in ("broken.txt", "loop.txt"):
        with pytest.raises(SkippedFile, match="a link that leads nowhere") as caught:
            read(tmp_path / name)
        assert caught.value.reason == "broken_link"


def test_permission_denied_and_vanished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.txt"
    with pytest.raises(SkippedFile, match="cannot be read: No such file") as caught:
        read(path)
    assert caught.value.reason == "unreadable"
    path.write_text("a")

    def denied(self: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "read_bytes", denied)  # modes do not stop root, who may run this test
    with pytest.raises(SkippedFile, match="cannot be read: Permission denied") as caught:
        read(path)
    assert caught.value.reason == "unreadable"


def test_skipped_file_survives_pickling() -> None:
    skipped = SkippedFile(Path("a\udcff.txt"), "binary", "NUL byte at position 8")
    copy = pickle.loads(pickle.dumps(skipped))
    assert (copy.path, copy.reason, str(copy)) == (skipped.path, "binary", r"a\xff.txt: NUL byte at position 8")
