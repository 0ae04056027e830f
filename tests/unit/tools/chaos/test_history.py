"""Histories of clients as files, and the times at which their connections broke."""

from __future__ import annotations

from tools.chaos.history import RECORD, Breaks, Record, What, parse_payload, payload_of, read, write

HEAD = "2026-11-21 19:05:{} INFO  [139805196916416] {} | "
LOG = "".join(
    f"{HEAD.format(second, where)}{text}\n"
    for second, where, text in (
        ("37.169", "ConnectionPool:165", "Remove connection for pulsar://127.0.0.1:24477-0"),
        ("37.169", "HandlerBase:186", "[persistent://public/default/chaos-4, pp] Schedule reconnection in 0.1 s"),
        (
            "37.170",
            "HandlerBase:186",
            "[persistent://public/default/chaos-12, chaos, 3] Schedule reconnection in 0.1 s",
        ),
        ("37.900", "HandlerBase:186", "[persistent://public/default/chaos-4, pp] Schedule reconnection in 0.2 s"),
        ("38.100", "ProducerImpl:222", "[persistent://public/default/chaos-4, pp] Created producer on broker [a -> b]"),
        ("39.000", "HandlerBase:186", "[persistent://public/default/chaos-4, pp] Schedule reconnection in 0.1 s"),
    )
)
SECOND_US = 1_795_287_937_000_000
"""2026-11-21 19:05:37 UTC."""


def test_what_is_written_is_read_in_order(tmp_path):
    records = [
        Record(What.SENT, 3, 0, 7, 1_000, key=2),
        Record(What.RECEIPT, 3, 0, 7, 2_000, 1 << 40, 5, -1),
        Record(What.DELIVERED, 19, 1, 1 << 31, 3_000, 0, 0, 9, 4),
    ]
    with open(tmp_path / "x.history", "wb") as file:
        for record in records:
            write(file, record)
    assert list(read(tmp_path / "x.history")) == records
    assert RECORD.size == 40


def test_a_payload_says_what_it_is_and_a_damaged_one_is_nobodys():
    payload = payload_of(3, 17, 1)
    assert parse_payload(payload) == (3, 17, 1)
    for place in range(len(payload)):
        damaged = bytearray(payload)
        damaged[place] ^= 0x41
        assert parse_payload(bytes(damaged)) != (3, 17, 1)
    assert parse_payload(payload[:-1]) is None
    assert parse_payload(b"") is None


def test_breaks_are_told_by_topic_with_their_times():
    breaks = Breaks.of_log(LOG)
    assert len(breaks) == 3
    first = SECOND_US + 169_000
    assert breaks.first_in(4, first, first) == first
    assert breaks.first_in(4, first + 1, first + 1_000_000) is None
    assert breaks.first_in(4, first + 1, first + 2_000_000) == SECOND_US + 2_000_000
    assert breaks.first_in(12, 0, 1 << 60) == SECOND_US + 170_000
    assert breaks.first_in(5, 0, 1 << 60) is None


def test_a_break_lasts_until_the_same_producer_or_consumer_is_there_again():
    breaks = Breaks.of_log(LOG)
    first, back = SECOND_US + 169_000, SECOND_US + 1_100_000
    assert breaks.during(4, 0, first - 1) is None
    assert breaks.during(4, back, back) == first
    assert breaks.during(4, back + 1, SECOND_US + 1_999_999) is None
    assert breaks.during(4, SECOND_US + 9_000_000, SECOND_US + 9_000_000) == SECOND_US + 2_000_000
    assert breaks.during(5, 0, 1 << 60) is None
