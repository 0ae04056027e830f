from __future__ import annotations

from quire.cli.shell.entry_text import EntryFormat, hex_dump


def test_a_dump_has_the_originals_columns() -> None:
    data = bytes.fromhex("8628200315161718191A1B1C1D1E1F202122232425")
    assert hex_dump(data).splitlines() == [
        "00000000 86 28 20 03 15 16 17 18 19 1A 1B 1C 1D 1E 1F 20 .( ............ ",
        '00000010 21 22 23 24 25                                  !"#$%',
    ]
    assert hex_dump(b"") == ""


def test_text_is_shown_even_if_it_is_none() -> None:
    assert EntryFormat.STRING.lines(b"gr\xc3\xbcn") == "grün"
    assert EntryFormat.STRING.lines(memoryview(b"a\xffb")) == "a\ufffdb"
    assert EntryFormat.HEX.lines(b"a") == hex_dump(b"a")
