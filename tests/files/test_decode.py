"""Encodings: the text is that of ``open(path, encoding=…).read()``, and a wrong guess is never made silently."""

from __future__ import annotations

import codecs
import io
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lmk_embed.errors import ConfigError
from lmk_embed.files import SkippedFile
from lmk_embed.files.decode import decode

unhurried = settings(deadline=None)  # slow machines are no failures
PATH = Path("a.txt")
GERMAN = "Die Kündigung muß schriftlich erfolgen; die Höhe der Miete beträgt 850 €.\n"
SPANISH = "El señor Núñez pidió más información sobre la situación económica del año pasado.\n"
POLISH = "Umowa najmu wchodzi w życie z dniem podpisania przez obie strony. Żółć, gęś, źdźbło.\n"
RUSSIAN = "Договор аренды вступает в силу после подписания обеими сторонами, до конца текущего года.\n"
JAPANESE = "賃貸借契約は、双方が署名した日から効力を生じ、年末まで有効とする。家賃は毎月末日までに支払う。\n"
CHINESE = "租赁合同自双方签字之日起生效。有效期至年底。租金应于每月月底之前支付。\n"
KOREAN = "임대차 계약은 양 당사자가 서명한 날부터 효력이 발생하며 연말까지 유효합니다.\n"


def python_reads(data: bytes, encoding: str) -> str:
    return io.TextIOWrapper(io.BytesIO(data), encoding=encoding).read()


@unhurried
@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0") | st.sampled_from("\r\n\ufeff")))
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
def test_text_is_what_python_reads(encoding: str, text: str) -> None:
    data = text.encode(encoding)
    decoded, found = decode(data, PATH)
    assert decoded == python_reads(data, found)
    assert found == ("utf-8" if encoding == "utf-8-sig" or not data else encoding)


@pytest.mark.parametrize("mark", [codecs.BOM_UTF16_BE, codecs.BOM_UTF32_BE])
def test_big_endian(mark: bytes) -> None:
    encoding = "utf-16-be" if mark == codecs.BOM_UTF16_BE else "utf-32-be"
    data = mark + "Größe 東京\r\n".encode(encoding)
    decoded, found = decode(data, PATH)
    assert decoded == "Größe 東京\n" == python_reads(data, found)


def test_byte_order_mark_of_utf8_is_a_character_as_in_python() -> None:
    assert decode(codecs.BOM_UTF8 + b"a", PATH) == ("\ufeffa", "utf-8")


def test_line_ends() -> None:
    data = b"a\r\nb\rc\n\rd\r\r\ne\x0bf\x0cg\xc2\x85h\xe2\x80\xa8"
    assert decode(data, PATH)[0] == python_reads(data, "utf-8") == "a\nb\nc\n\nd\n\ne\x0bf\x0cg\x85h\u2028"


def test_empty() -> None:
    assert decode(b"", PATH) == ("", "utf-8")


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        (RUSSIAN, "cp1251"),
        (RUSSIAN, "cp866"),
        (JAPANESE, "cp932"),
        (JAPANESE, "euc_jp"),
        (CHINESE, "gb18030"),
        (CHINESE, "big5"),
        (KOREAN, "cp949"),
    ],
)
@pytest.mark.parametrize("head", ["", "x" * 200_000 + "\n"], ids=["short", "long ASCII head"])
def test_clear_legacy_encodings_are_detected(text: str, encoding: str, head: str) -> None:
    data = (head + text * 3).encode(encoding, "ignore")
    decoded, found = decode(data, PATH)
    assert decoded == data.decode(encoding) == python_reads(data, found)


@pytest.mark.parametrize(("text", "encoding"), [(SPANISH, "cp1252"), (POLISH, "cp1250"), (POLISH, "iso8859_2")])
def test_ambiguous_encodings_are_not_guessed(text: str, encoding: str) -> None:
    with pytest.raises(SkippedFile, match=r"not UTF-8: .*byte 0x.. at position \d+.*could be .*cp125") as caught:
        decode(text.encode(encoding), PATH)
    assert caught.value.reason == "undecodable"


@pytest.mark.parametrize(("text", "encoding"), [(GERMAN, "cp1252"), (SPANISH, "cp1252"), (POLISH, "cp1250")])
def test_fallback_of_the_caller(text: str, encoding: str) -> None:
    assert decode(text.encode(encoding), PATH, fallback=encoding) == (text, encoding)
    assert decode(text.encode(), PATH, fallback=encoding) == (text, "utf-8")


@pytest.mark.parametrize("name", ["no-such-encoding", "hex", "rot13"])
def test_unknown_fallback_is_a_setting_error(name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        decode(b"a", PATH, fallback=name)


@pytest.mark.parametrize(
    ("head", "encoding", "found"),
    [
        ('<html><head><META Charset="ISO-8859-1">', "cp1252", "cp1252"),
        ('<meta http-equiv="Content-Type" content="text/html; charset=windows-1250">', "cp1250", "cp1250"),
        ("<?xml version='1.0' encoding='iso-8859-2'?>", "iso8859_2", "iso8859-2"),
        ("# -*- coding: iso-8859-2 -*-\n", "iso8859_2", "iso8859-2"),
        ("<meta charset=shift_jis>契約", "cp932", "cp932"),
        ("<meta charset=gb2312>租赁", "gb18030", "gb18030"),
    ],
)
def test_declared_encoding(head: str, encoding: str, found: str) -> None:
    text = head if not head.isascii() else head + "ö ü ß é"
    assert decode(text.encode(encoding), PATH) == (text, found)


@pytest.mark.parametrize("name", ["utf-8", "utf-7", "unicode_escape", "hex", "idna", "nonsense", "cp1253"])
def test_useless_declarations_are_passed_over(name: str) -> None:
    data = f'<meta charset="{name}">'.encode() + "\u00d2\u00ff".encode("latin-1") + SPANISH.encode("cp1252")
    with pytest.raises(SkippedFile) as caught:
        decode(data, PATH)
    assert caught.value.reason == "undecodable"


def test_utf8_wins_over_a_wrong_declaration() -> None:
    text = "<meta charset=latin-1>Größe"
    assert decode(text.encode(), PATH) == (text, "utf-8")


@pytest.mark.parametrize("fallback", [None, "cp1252"])
def test_damaged_utf8_is_not_read_in_another_encoding(fallback: str | None) -> None:
    data = ("“Größe” — " * 20).encode() + b"\xff tail \xe2\x80"
    with pytest.raises(SkippedFile, match=r"damaged UTF-8: .*byte 0xff at position 360\), 3 bytes") as caught:
        decode(data, PATH, fallback)
    assert caught.value.reason == "undecodable"


@pytest.mark.parametrize(
    ("data", "position"),
    [(b"\x89PNG\r\n\x1a\n\0\0", 8), (b"a" * 100_000 + b"\0", 100_000), ("text".encode("utf-16-le"), 1)],
)
def test_binary(data: bytes, position: int) -> None:
    with pytest.raises(SkippedFile, match=f"NUL byte at position {position}") as caught:
        decode(data, PATH)
    assert caught.value.reason == "binary"


@pytest.mark.parametrize(
    "data", [codecs.BOM_UTF16_LE + b"a", codecs.BOM_UTF16_LE + b"\x00\xdc", b"\xff\xfe\0\0abc"]
)
def test_broken_utf16_and_utf32(data: bytes) -> None:
    with pytest.raises(SkippedFile, match=r"byte order mark of UTF-(16|32).* at position [24]") as caught:
        decode(data, PATH)
    assert caught.value.reason == "undecodable"


def test_nul_in_utf16_is_binary() -> None:
    with pytest.raises(SkippedFile, match="NUL character at position 1") as caught:
        decode("a\0b".encode("utf-16"), PATH)
    assert caught.value.reason == "binary"


@unhurried
@given(st.binary(max_size=200))
def test_any_bytes_are_text_or_skipped(data: bytes) -> None:
    try:
        text, encoding = decode(data, PATH)
    except SkippedFile as skipped:
        assert skipped.reason in ("binary", "undecodable")
    else:
        assert text == python_reads(data, encoding)
        assert text.encode().decode() == text  # no half surrogate pairs
