"""Cookies (pure), which identify the bookie of a directory: the VERSION file of every bookie directory, and
`cookies/<bookie id>`.

    layout version LF, then
    version 5, 4   CookieFormat as protobuf text (4 knows no indexDirs)
    version 3      lines: bookie host, journal directory, ledger directories
    journal directories are joined by commas; ledger and index directories are `count TAB first TAB second ...`

Source: BookKeeper's Cookie; tests/golden/bookkeeper/cookies.
"""

from __future__ import annotations

from dataclasses import dataclass

from quire.metadata import text_proto
from quire.metadata.errors import MalformedMetadataError, UnsupportedLayoutError
from quire.wire.bookkeeper.DataFormats_pb2 import CookieFormat

LAYOUT_VERSION = 5
OLDEST_LAYOUT_VERSION = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Cookie:
    bookie_id: str
    journal_directories: tuple[str, ...]
    ledger_directories: tuple[str, ...]
    index_directories: tuple[str, ...] | None = None
    """Directories of the indexes; None: the indexes are in the ledger directories."""
    instance_id: str = ""
    """UUID of the cluster; empty in a cookie from before clusters had one."""
    layout_version: int = LAYOUT_VERSION
    """Layout version of the decoded bytes; the newest is always written."""


def encode_cookie(cookie: Cookie) -> bytes:
    message = CookieFormat(
        bookieHost=cookie.bookie_id,
        journalDir=",".join(cookie.journal_directories),
        ledgerDirs=_join(cookie.ledger_directories),
    )
    if cookie.instance_id:
        message.instanceId = cookie.instance_id
    if cookie.index_directories is not None:
        message.indexDirs = _join(cookie.index_directories)
    return b"%d\n" % LAYOUT_VERSION + text_proto.write(message)


def decode_cookie(data: bytes) -> Cookie:
    """Decode a cookie. MalformedMetadataError; UnsupportedLayoutError for a layout newer than 5 or older than 3."""
    first, _, body = data.partition(b"\n")
    if not first.strip().isdigit():
        raise MalformedMetadataError(f"a cookie does not begin with {first[:40]!r}")
    version = int(first)
    if not OLDEST_LAYOUT_VERSION <= version <= LAYOUT_VERSION:
        raise UnsupportedLayoutError(
            f"the cookie has layout version {version}; this program knows {OLDEST_LAYOUT_VERSION} to {LAYOUT_VERSION}"
        )
    try:
        if version == 3:
            host, journal, ledgers = body.decode().splitlines()
            message = CookieFormat(bookieHost=host, journalDir=journal, ledgerDirs=ledgers)
        else:
            message = text_proto.parse(body, CookieFormat())
        return Cookie(
            bookie_id=message.bookieHost,
            journal_directories=tuple(message.journalDir.split(",")),
            ledger_directories=_split(message.ledgerDirs),
            index_directories=_split(message.indexDirs) if message.HasField("indexDirs") else None,
            instance_id=message.instanceId,
            layout_version=version,
        )
    except ValueError as error:
        raise MalformedMetadataError(f"a cookie is damaged: {error}") from error


def _join(directories: tuple[str, ...]) -> str:
    return "\t".join((str(len(directories)), *directories))


def _split(text: str) -> tuple[str, ...]:
    count, *directories = text.split("\t")
    if int(count) != len(directories):
        raise ValueError(f"it announces {count} directories and names {len(directories)}")
    return tuple(directories)
