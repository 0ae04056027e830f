"""Ledgers that one client writes and the other reads, on Quire's bookies: every digest, both protocol versions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from quire.ledger.bookies.pool import WireProtocol
from quire.wire.bookkeeper.entry import DIGEST_TYPES
from tests.interop import exchange
from tests.interop.java import run_tester
from tests.support.bookies import BookieCluster, cluster

PROTOCOLS = ("v2", "v3")
JAVA_OPTIONS = {"v2": ("--v2",), "v3": ()}


@pytest.fixture(scope="module")
def bookies(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BookieCluster]:
    with cluster(tmp_path_factory.mktemp("exchange"), 3) as made:
        yield made


@pytest.mark.parametrize("reading", PROTOCOLS)
@pytest.mark.parametrize("writing", PROTOCOLS)
def test_what_java_writes_we_read(
    writing: WireProtocol, reading: WireProtocol, bookies: BookieCluster, tmp_path: Path
) -> None:
    path = tmp_path / "list.jsonl"
    run_tester(bookies.uri, "write", str(path), *JAVA_OPTIONS[writing])
    ledgers = exchange.read_list(path)
    assert {ledger.digest for ledger in ledgers} == set(DIGEST_TYPES)
    assert {ledger.closed for ledger in ledgers} == {True, False}
    exchange.verify(bookies.uri, reading, ledgers, recover=False)
    exchange.verify(bookies.uri, reading, ledgers, recover=True)
    run_tester(bookies.uri, "verify", str(path), "--recover", *JAVA_OPTIONS[writing])


@pytest.mark.parametrize("reading", PROTOCOLS)
@pytest.mark.parametrize("writing", PROTOCOLS)
def test_what_we_write_java_reads(
    writing: WireProtocol, reading: WireProtocol, bookies: BookieCluster, tmp_path: Path
) -> None:
    path = tmp_path / "list.jsonl"
    ledgers = exchange.write(bookies.uri, writing)
    exchange.write_list(path, ledgers)
    for how in ((), ("--recover",)):
        told = run_tester(bookies.uri, "verify", str(path), *how, *JAVA_OPTIONS[reading])
        assert f"{len(ledgers)} passed, 0 failed" in told
    exchange.verify(bookies.uri, writing, ledgers, recover=True)
