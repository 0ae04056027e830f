from __future__ import annotations

from dataclasses import replace

import pytest

from quire.metadata.cookies import Cookie, decode_cookie, encode_cookie
from quire.metadata.errors import MalformedMetadataError, UnsupportedLayoutError
from tests.support.refusals import refuses

COOKIE = Cookie(
    bookie_id="bk1:3181",
    journal_directories=("/j1", "/j2"),
    ledger_directories=("/d1", "/d2"),
    index_directories=("/i1",),
    instance_id="6f549440-76de-4a6b-9f94-9b59c6802583",
)


def test_a_cookie_has_the_documented_text() -> None:
    assert encode_cookie(COOKIE) == (
        b'5\nbookieHost: "bk1:3181"\njournalDir: "/j1,/j2"\nledgerDirs: "2\\t/d1\\t/d2"\n'
        b'instanceId: "6f549440-76de-4a6b-9f94-9b59c6802583"\nindexDirs: "1\\t/i1"\n'
    )


@pytest.mark.parametrize(
    "cookie",
    [
        COOKIE,
        replace(COOKIE, index_directories=None, instance_id=""),
        replace(COOKIE, ledger_directories=('/with "quotes" and \\', "/größe")),
    ],
)
def test_a_cookie_is_read_back(cookie: Cookie) -> None:
    assert decode_cookie(encode_cookie(cookie)) == cookie


def test_layout_4_is_the_same_text_without_index_directories() -> None:
    text = b'4\nbookieHost: "h:1"\njournalDir: "/j"\nledgerDirs: "1\\t/d"\n'
    cookie = decode_cookie(text)
    assert cookie == Cookie(bookie_id="h:1", journal_directories=("/j",), ledger_directories=("/d",), layout_version=4)
    assert encode_cookie(cookie) == b"5" + text[1:]


def test_layout_3_is_plain_lines() -> None:
    assert decode_cookie(b"3\nh:1\n/j\n2\t/d1\t/d2\n") == Cookie(
        bookie_id="h:1", journal_directories=("/j",), ledger_directories=("/d1", "/d2"), layout_version=3
    )


@pytest.mark.parametrize("version", [0, 1, 2, 6, 50])
def test_other_layouts_are_refused(version: int) -> None:
    refuses(UnsupportedLayoutError, lambda: decode_cookie(b"%d" % version + encode_cookie(COOKIE)[1:]), str(version))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"x\n",
        b"5\n",
        b'5\nbookieHost: "h"',
        b"5\nnoise",
        b"5\n\xff",
        b'5\nbookieHost: "h"\njournalDir: "j"\nledgerDirs: "2\\t/d"\n',
        b'5\nbookieHost: "h"\njournalDir: "j"\nledgerDirs: "/d"\n',
        b"3\nh\n/j\n",
        b"3\nh\n/j\n1\t/d\nmore\n",
    ],
    ids=repr,
)
def test_damaged_cookies_are_refused(data: bytes) -> None:
    refuses(MalformedMetadataError, lambda: decode_cookie(data))
