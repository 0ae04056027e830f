"""Folders with the original's older storages: written by its bookie, converted, served by ours and by its own with
DbLedgerStorage, and converted back. There is no other copy of the ledgers."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest

from quire.cli.shell.main import run_shell
from tests.interop import exchange
from tests.interop.java import ApacheBookie, shell
from tests.interop.our_bookie import OurBookie, serves
from tests.support.bookies import cluster


def convert(conf: Path, command: str) -> None:
    out, err = io.StringIO(), io.StringIO()
    code = run_shell(["-conf", str(conf), command], out=out, err=err, environment={})
    assert code == 0, err.getvalue()


def with_storage(conf: Path, storage: str) -> None:
    name = f"ledgerStorageClass=org.apache.bookkeeper.bookie.{storage}"
    conf.write_text(re.sub(r"ledgerStorageClass=.*", name, conf.read_text()))


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("storage", ["SortedLedgerStorage", "InterleavedLedgerStorage"])
def test_what_its_bookie_wrote_is_served_after_a_conversion_there_and_back(
    storage: str, killed: bool, tmp_path: Path
) -> None:
    with cluster(tmp_path / "cluster", 0) as bookies:
        theirs = ApacheBookie(tmp_path / "theirs", bookies.uri, conf={"flushInterval": 500})
        with_storage(theirs.conf, storage)
        theirs.start()
        written = exchange.write(bookies.uri, "v2", quorum=(1, 1, 1), count=40)
        theirs.kill() if killed else theirs.stop()
        convert(theirs.conf, "convert-to-db-storage")
        with_storage(theirs.conf, "storage.ldb.DbLedgerStorage")
        our = OurBookie(theirs, tmp_path / "our", bookies.uri)
        our.start()
        serves(bookies, written)
        our.stop()
        assert "=== Check passed ===" in shell(theirs.conf, "localconsistencycheck")
        theirs.start()
        serves(bookies, written)
        theirs.stop()
        convert(theirs.conf, "convert-to-interleaved-storage")
        with_storage(theirs.conf, storage)
        assert "=== Check passed ===" in shell(theirs.conf, "localconsistencycheck")
        theirs.start()
        serves(bookies, written)
        theirs.stop()
