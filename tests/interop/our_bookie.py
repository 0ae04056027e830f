"""A bookie of ours on the folders of one of the original's."""

from __future__ import annotations

from pathlib import Path

from tests.interop import exchange
from tests.interop.exchange import Exchanged
from tests.interop.java import ApacheBookie
from tests.support.bookie_process import BookieProcess
from tests.support.bookies import BookieCluster


class OurBookie(BookieProcess):
    """`quire bookie` on the folders, the port and with the name of the original's."""

    def __init__(self, theirs: ApacheBookie, folder: Path, uri: str, **more: object) -> None:
        keys = dict(line.split("=", 1) for line in theirs.conf.read_text().splitlines())
        folders = {key: keys[key] for key in ("journalDirectories", "ledgerDirectories")}
        named = {"bookiePort": theirs.port, "bookieId": theirs.id, "allowLoopback": "true"}
        super().__init__(folder, uri, **named, **folders, **more)
        self.port = theirs.port


def serves(bookies: BookieCluster, written: list[Exchanged]) -> None:
    exchange.verify(bookies.uri, "v2", [each for each in written if each.closed], recover=False)
