"""Bits that change on the disk behind the server's back are noticed, and never reach a consumer."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.raw import RawClient
from tests.support.server import standalone

pytestmark = pytest.mark.cluster
TOPIC = "persistent://public/default/damage"


@pytest.mark.parametrize("field", ["payload", "entry id"])
def test_a_flipped_bit_in_an_entry_log_is_never_delivered(tmp_path: Path, field: str) -> None:
    with standalone(tmp_path) as server:
        with RawClient(server.port) as client:
            client.producer(TOPIC)
            client.subscribe(TOPIC)
            for number in range(20):
                client.publish(b"message %d" % number, sequence_id=number)
        assert server.stop() == 0
        (log,) = server.data.glob("bookie/ledgers/current/*.log")
        data = bytearray(log.read_bytes())
        place = data.index(b"message 7")
        if field == "entry id":
            # An entry begins with ledger id, entry id, LAC: entry 7 of its ledger knows LAC 6 or less.
            place = data.rindex((7).to_bytes(8, "big"), 0, place) + 7
        data[place] ^= 0x10
        log.write_bytes(data)
        server.announced.append("read failed")
        server.start()
        with RawClient(server.port) as client:
            client.subscribe(TOPIC)
            client.flow(100)
            seen = [client.message()[1] for _ in range(7)]
            assert client.silent(1.0)
        assert seen == [b"message %d" % number for number in range(7)]
        assert "read failed" in server.log()
