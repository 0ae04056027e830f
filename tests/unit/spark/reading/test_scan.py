"""Reads of a range: every planned entry, in order, once, and no other; or an error that reports the data loss."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
import trio
import trio.testing

from quire.client.deliveries import Deliveries
from quire.client.errors import CorruptEntryError
from quire.client.message_id import MessageId
from quire.client.packing import pack
from quire.spark.errors import DataLossError, SourceUnavailableError
from quire.spark.planning.ranges import TopicRange
from quire.spark.reading import scan as reading
from quire.spark.reading.columns import BYTES_TARGET, ROWS_MAX, Columns
from quire.spark.reading.passed_over import PassedOver
from quire.spark.reading.range_rows import RangeRows
from quire.spark.reading.scan import RangeScan, read_range
from tests.support.refusals import refuses
from tests.unit.spark.entries import chunk, plain
from tests.unit.spark.reading.planned import TOPIC, deliver, options, read, work

# Rows


def test_entries_above_the_range_are_not_rows():
    assert read(work((5, 0, 1)), deliver((5, 0), (5, 1), (5, 2), (6, 0))) == [b"5:0", b"5:1"]


def test_rows_come_in_order_whatever_the_deliveries_are_cut_into():
    places = [(5, number) for number in range(7)] + [(8, number) for number in range(5)]
    task = work((5, 0, 6), (8, 0, 4))
    whole = read(task, deliver(*places))
    assert whole == [b"%d:%d" % place for place in places]
    assert read(task, *(deliver(place) for place in places)) == whole
    assert read(task, deliver(*places[:5]), deliver(*places[5:])) == whole


def test_missing_entries_are_an_error_that_names_topic_range_and_option():
    with pytest.raises(DataLossError) as raised:
        read(work((5, 0, 4), (6, 0, 1)), deliver((5, 0), (5, 4), (6, 0), (6, 1)))
    assert str(raised.value) == (
        f"{TOPIC}: entries 5:1..5:3 (3 entries) of the range 5:0..5:4, 6:0..6:1 (7 entries) are gone (received 5:4 "
        "instead of 5:1); set failOnDataLoss=false to skip them"
    )


def test_with_the_option_off_missing_entries_are_one_warning(caplog: pytest.LogCaptureFixture):
    fed = deliver((5, 0), (5, 2), (5, 4), (6, 1))
    with caplog.at_level(logging.WARNING):
        assert read(work((5, 0, 4), (6, 0, 1)), fed, failOnDataLoss="false") == [b"5:0", b"5:2", b"5:4", b"6:1"]
    (record,) = caplog.records
    assert "5:1 (1 entry)" in record.getMessage()
    assert "failOnDataLoss=false" in record.getMessage()


def test_a_feed_that_ends_early_is_data_loss():
    refuses(DataLossError, lambda: read(work((5, 0, 3)), deliver((5, 0), (5, 1))), r"entries 5:2..5:3 \(2 entries\)")


def test_entries_out_of_order_are_not_taken_for_data_loss():
    with pytest.raises(SourceUnavailableError, match=r"out of order .* received 5:0 instead of 5:1"):
        read(work((5, 0, 3)), deliver((5, 0), (5, 0)))


def test_an_entry_that_is_damaged_is_named():
    entry = bytearray(plain(b"value"))
    entry[-1] ^= 1
    refuses(CorruptEntryError, lambda: read(work((5, 1, 1)), deliver((5, 1), entry=bytes(entry))), "5:1")


def test_a_start_within_a_batch_leaves_out_the_messages_before_it_and_only_there():
    (packed,) = pack([b"a", b"b", b"c"])
    entry = packed.encode("p", 0, 1)
    fed = deliver((5, 0), (5, 1), entry=entry)
    assert read(work((5, 0, 1), start=2), fed) == [b"c", b"a", b"b", b"c"]
    assert read(work((5, 0, 1), start=3), fed) == [b"a", b"b", b"c"]
    assert read(work((5, 0, 1), start=1), deliver((5, 0), (5, 1))) == [b"5:1"]


def test_batches_are_bounded_by_rows_and_by_bytes():
    many = work((5, 0, 2 * ROWS_MAX))
    fed = deliver(*((5, number) for number in range(2 * ROWS_MAX + 1)))
    sizes = [batch.num_rows for batch in read_range(many, options(), Columns(["value"], TOPIC), iter([fed]))]
    assert sum(sizes) == 2 * ROWS_MAX + 1
    assert max(sizes) <= ROWS_MAX
    assert min(sizes[:-1]) >= ROWS_MAX // 2
    large = deliver(*((5, number) for number in range(60)), entry=plain(bytes(1 << 20)))
    sizes = [
        batch.nbytes for batch in read_range(work((5, 0, 59)), options(), Columns(["value"], TOPIC), iter([large]))
    ]
    assert all(BYTES_TARGET <= size <= 2 * BYTES_TARGET + 4096 for size in sizes[:-1])


def test_a_compressed_entry_that_grows_a_thousandfold_does_not_make_a_batch_of_everything():
    (packed,) = pack([bytes(4 << 20)], compression="zstd")
    fed = deliver(*((5, number) for number in range(20)), entry=packed.encode("p", 0, 1))
    fed.entries[0] = plain(b"what comes first tells nothing of what follows")
    rows = RangeRows(work((5, 0, 19)), Columns(["value"], TOPIC), fail_on_data_loss=True)
    rows.give(fed)
    batches = 0
    while not rows.done or rows.ready:
        rows.advance()
        found = sum(batch.nbytes for batch in rows.ready)
        assert found <= 2 * BYTES_TARGET + 4096, "more was opened than a batch wants"
        batches += len(rows.ready)
        rows.ready.clear()
    assert batches >= 4
    assert rows.rows == 20


def test_a_batch_is_made_as_soon_as_its_rows_are_there():
    fed = 0

    def feed() -> Iterator[Deliveries]:
        nonlocal fed
        for first in range(0, 5 * ROWS_MAX, 500):
            fed += 500
            yield deliver(*((5, number) for number in range(first, first + 500)), entry=entry)

    entry = plain(b"tiny")
    batches = read_range(work((5, 0, 5 * ROWS_MAX - 1)), options(), Columns(["value"], TOPIC), feed())
    assert next(batches).num_rows == ROWS_MAX
    assert fed == ROWS_MAX
    assert sum(batch.num_rows for batch in batches) == 4 * ROWS_MAX


def test_the_same_range_read_twice_gives_the_same_rows():
    fed = [deliver(*((5, number) for number in range(100)))]
    columns = ("value", "__entry", "__messageId")
    assert read(work((5, 0, 99)), *fed, columns=columns) == read(work((5, 0, 99)), *fed, columns=columns)


def test_a_chunked_message_whose_beginning_is_out_of_reach_is_data_loss():
    fed = Deliveries([5, 5], [8, 9], [plain(b"a"), chunk(b"end", 1, 2)])
    with pytest.raises(
        DataLossError, match=r"chunked message that ends at 5:9 lacks the pieces \[0\].*chunkedMessageHold"
    ):
        read(work((5, 8, 9)), fed)
    assert read(work((5, 8, 9)), fed, failOnDataLoss="false") == [b"a"]


def test_a_start_within_an_entry_that_is_the_last_piece_of_a_message_leaves_the_message_out():
    task = work((5, 8, 9), start=2)
    fed = deliver((5, 8), entry=chunk(b"world", 1, 2)), deliver((5, 9), entry=plain(b"a"))
    assert read(task, *fed, failOnDataLoss="false") == [b"a"]


# The scan, against a broker of this file


class FakeReader:
    """A reader of a log of entries: it delivers `step` at a time, and waits at the end."""

    def __init__(self, log: dict[tuple[int, int], bytes], start: MessageId, step: int, opened: list[Any]) -> None:
        self.places = sorted(place for place in log if place >= (start.ledger_id, start.entry_id))
        self.log = log
        self.step = step
        self.opened = opened
        opened.append(self)
        self.start = start
        self.closed = False

    async def receive(self) -> Deliveries:
        await trio.lowlevel.checkpoint()
        if not self.places:
            await trio.sleep_forever()
        taken, self.places = self.places[: self.step], self.places[self.step :]
        return Deliveries([each[0] for each in taken], [each[1] for each in taken], [self.log[each] for each in taken])

    async def last_message_id(self) -> MessageId:
        await trio.lowlevel.checkpoint()
        return MessageId(*max(self.log, default=(-1, -1)))

    async def close(self) -> None:
        await trio.lowlevel.checkpoint()
        self.closed = True


class FakeRuntime:
    """Leases a client whose readers read `log`."""

    def __init__(self, log: dict[tuple[int, int], bytes], step: int = 3) -> None:
        self.log = log
        self.step = step
        self.opened: list[FakeReader] = []
        self.kind = FakeReader
        self.passed_over: set[tuple[int, int]] = set()
        """Entries that a broker leaves out because of a transaction."""
        self.leases = 0
        self.client = self

    async def lease(self, _url: str, _options: object) -> FakeRuntime:
        await trio.lowlevel.checkpoint()
        self.leases += 1
        return self

    def release(self) -> None:
        self.leases -= 1

    async def reader(self, _topic: str, start: MessageId, *, window: int) -> FakeReader:
        await trio.lowlevel.checkpoint()
        assert window > 0
        return self.kind(self.log, start, self.step, self.opened)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeRuntime]:
    made = FakeRuntime({(5, number): plain(b"5:%d" % number) for number in range(10)})
    monkeypatch.setattr(reading, "runtime", lambda: made)
    monkeypatch.setattr(
        PassedOver, "_ask", lambda _self, ledger_id, entry_id: (ledger_id, entry_id) in made.passed_over
    )
    yield made
    assert made.leases == 0, "a lease was not given back"
    assert all(reader.closed for reader in made.opened), "a reader was left open"


def scan(task: TopicRange, **changed: str) -> list[bytes]:
    async def run() -> list[bytes]:
        made = RangeScan(task, options(**changed), Columns(["value"], TOPIC))
        rows: list[bytes] = []
        try:
            while (batch := await made.next()) is not None:
                rows += [row["value"] for row in batch.to_pylist()]
        finally:
            await made.close()
            await made.close()
        return rows

    return trio.run(run, clock=trio.testing.MockClock(autojump_threshold=0))


def test_a_scan_opens_its_reader_at_the_first_entry_and_closes_it_behind_the_last(fake: FakeRuntime):
    assert scan(work((5, 2, 7))) == [b"5:%d" % number for number in range(2, 8)]
    (reader,) = fake.opened
    assert reader.start == MessageId(5, 2)


def test_when_nothing_comes_and_the_topic_ends_before_it_the_rest_is_lost(fake: FakeRuntime):
    refuses(DataLossError, lambda: scan(work((5, 8, 12))), r"entries 5:10..5:12 \(3 entries\) .*the topic ends at 5:9")
    assert scan(work((5, 8, 12)), failOnDataLoss="false") == [b"5:8", b"5:9"]


def test_entries_that_a_broker_leaves_out_because_of_a_transaction_are_not_lost(fake: FakeRuntime):
    for number in (3, 4, 8, 9):
        del fake.log[5, number]
        fake.passed_over.add((5, number))
    assert scan(work((5, 2, 9))) == [b"5:2", b"5:5", b"5:6", b"5:7"]
    fake.passed_over.remove((5, 4))
    with pytest.raises(DataLossError, match=r"entries 5:4 \(1 entry\)"):
        scan(work((5, 2, 9)))


def test_when_nothing_comes_although_it_is_there_the_wait_is_bounded(fake: FakeRuntime):
    fake.log[9, 0] = plain(b"last")
    del fake.log[5, 9]
    fake.step = 9

    class Slow(FakeReader):
        async def receive(self) -> Deliveries:
            self.places = [place for place in self.places if place[0] == 5]
            return await super().receive()

    fake.kind = Slow
    with pytest.raises(SourceUnavailableError, match=r"5:9 was not received within 5000 ms.*up to 9:0.*pollTimeoutMs"):
        scan(work((5, 8, 9)), pollTimeoutMs="5000")


def test_pieces_of_chunked_messages_are_looked_for_before_the_range(fake: FakeRuntime):
    fake.log[3, 0] = chunk(b"one ", 0, 3)
    fake.log[5, 1] = chunk(b"two ", 1, 3)
    fake.log[5, 9] = chunk(b"three", 2, 3)
    fake.log.update({(4, number): plain(b"between") for number in range(40)})
    task = work((5, 8, 9), earlier=((3, 0, 0), (4, 0, 39), (5, 0, 7)))
    assert scan(task) == [b"5:8", b"one two three"]
    assert [reader.start for reader in fake.opened] == [MessageId(5, 8), MessageId(4, 32), MessageId(3, 0)]


def test_a_row_that_waits_for_its_pieces_keeps_its_place_when_a_batch_is_full_behind_it(fake: FakeRuntime):
    last = 8 + ROWS_MAX + 100
    fake.log.update(dict.fromkeys(((5, number) for number in range(8, last + 1)), plain(b"row")))
    fake.log[5, 7] = chunk(b"one ", 0, 2)
    fake.log[5, 8 + ROWS_MAX - 50] = chunk(b"two", 1, 2)
    fake.step = 2 * ROWS_MAX
    found = scan(work((5, 8, last), earlier=((5, 0, 7),)))
    assert found == [b"row"] * (ROWS_MAX - 50) + [b"one two"] + [b"row"] * 150


def test_looking_back_ends_where_the_plan_says_it_does(fake: FakeRuntime):
    fake.log[3, 0] = chunk(b"one ", 0, 2)
    fake.log[5, 9] = chunk(b"two", 1, 2)
    with pytest.raises(DataLossError, match=r"\[0\], which are not among the 8 entries before"):
        scan(work((5, 8, 9), earlier=((5, 0, 7),)))
    assert len(fake.opened) == 2


def test_looking_back_ends_where_the_log_was_trimmed(fake: FakeRuntime):
    fake.log[5, 9] = chunk(b"two", 1, 2)
    with pytest.raises(DataLossError, match="chunked message that ends at 5:9"):
        scan(work((5, 8, 9), earlier=((3, 0, 9), (5, 0, 7))))


def test_nothing_is_connected_when_rows_are_fed():
    # No fake runtime here: a connection would be tried at the default address, and fail.
    assert read(work((5, 0, 0)), deliver((5, 0))) == [b"5:0"]
