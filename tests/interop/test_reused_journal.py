"""A journal that our bookie wrote into reused files (journalReuseFiles) is replayed by the original's bookie."""

from __future__ import annotations

from pathlib import Path

from bookie.journal.replay import journal_ids
from quire.world.real_disk import RealDisk
from tests.interop import exchange
from tests.interop.java import ApacheBookie
from tests.interop.our_bookie import OurBookie, serves
from tests.support.bookies import cluster

ROUNDS_MAX = 40


def spares(journal: Path) -> set[str]:
    return {each.name for each in journal.iterdir() if each.name.endswith(".spare")}


def test_the_originals_bookie_replays_files_that_were_used_before(tmp_path: Path) -> None:
    with cluster(tmp_path / "cluster", 0) as bookies:
        theirs = ApacheBookie(tmp_path / "theirs", bookies.uri)
        journal = tmp_path / "theirs/journal/current"
        keys = {"journalReuseFiles": "true", "journalMaxSizeMB": 1, "journalMaxBackups": 0, "flushInterval": 200}
        our = OurBookie(theirs, tmp_path / "our", bookies.uri, **keys)
        our.start()
        written = []
        kept: set[str] = set()
        reused = False
        for _ in range(ROUNDS_MAX):
            written += exchange.write(bookies.uri, "v2", quorum=(1, 1, 1), count=300)
            now = spares(journal)
            reused = bool(kept - now)
            if reused:
                break
            kept |= now
        assert reused, "no file was reused"
        written += exchange.write(bookies.uri, "v2", quorum=(1, 1, 1), count=40)
        our.kill()
        assert journal_ids(RealDisk(), str(journal))
        theirs.start()
        serves(bookies, written)
        theirs.stop()
