"""The checker of a chaos run, with violations planted into good histories."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from tools.chaos.checker import CLOCK_US, GROUPING_US, SETTLE_US, AtRisk, Checker, Verdict
from tools.chaos.history import Break, Breaks, Record, What

MS = 1_000
KEYS = 2


def sent(sequence: int, at_ms: int, topic: int = 0) -> Record:
    return Record(What.SENT, topic, 0, sequence, at_ms * MS, key=sequence % KEYS)


def receipt(sequence: int, at_ms: int, entry: int | None = None, topic: int = 0) -> Record:
    return Record(What.RECEIPT, topic, 0, sequence, at_ms * MS, 1, sequence if entry is None else entry)


def delivered(sequence: int, at_ms: int, entry: int | None = None, topic: int = 0) -> Record:
    place = sequence if entry is None else entry
    return Record(What.DELIVERED, topic, 0, sequence, at_ms * MS, 1, place, key=sequence % KEYS)


def acknowledged(sequence: int, at_ms: int, entry: int | None = None, topic: int = 0) -> Record:
    return Record(What.ACKNOWLEDGED, topic, 0, sequence, at_ms * MS, 1, sequence if entry is None else entry)


def good(count: int = 6) -> tuple[list[Record], list[Record]]:
    """Return messages sent every 10 ms, answered 5 ms later, delivered and acknowledged 1 ms after that."""
    produced: list[Record] = []
    consumed: list[Record] = []
    for number in range(count):
        produced += [sent(number, 10 * number), receipt(number, 10 * number + 5)]
        consumed += [delivered(number, 10 * number + 6), acknowledged(number, 10 * number + 6)]
    return produced, consumed


def breaks(at_ms: Iterable[int], *, topic: int = 0, lasting_ms: int = 0) -> Breaks:
    return Breaks({topic: [Break(each * MS, (each + lasting_ms) * MS) for each in at_ms]})


def judge(
    produced: Iterable[Record],
    consumed: Iterable[Record],
    *,
    producer_breaks_ms: Iterable[int] = (),
    consumer_breaks_ms: Iterable[int] = (),
    lasting_ms: int = 0,
) -> Verdict:
    checker = Checker(breaks(producer_breaks_ms), breaks(consumer_breaks_ms, lasting_ms=lasting_ms))
    checker.producers(produced)
    checker.consumers(consumed)
    return checker.end()


def test_a_good_history_is_good():
    verdict = judge(*good())
    assert verdict.good
    assert (verdict.sent, verdict.receipts, verdict.delivered, verdict.unknown) == (6, 6, 6, 0)


@pytest.mark.parametrize("which", range(6))
def test_a_lost_message_is_found_whichever_it_is(which):
    produced, consumed = good()
    verdict = judge(produced, [record for record in consumed if record.sequence != which])
    assert verdict.counts == {"lost": 1}
    assert f"message {which}:" in verdict.examples["lost"][0]


def test_a_message_without_a_receipt_may_be_there_or_not():
    produced, consumed = good()
    produced = [record for record in produced if (record.what, record.sequence) != (What.RECEIPT, 3)]
    assert judge(produced, consumed).good
    verdict = judge(produced, [record for record in consumed if record.sequence != 3])
    assert verdict.good
    assert verdict.unknown == 1


def test_a_receipt_for_another_place_than_where_the_message_is_is_found():
    produced, consumed = good()
    produced = [receipt(3, 35, entry=77) if record == receipt(3, 35) else record for record in produced]
    assert judge(produced, consumed).counts == {"misplaced": 1}


def test_messages_of_a_key_that_change_places_are_found():
    produced, consumed = good()
    consumed[2 * 2 : 2 * 3], consumed[2 * 4 : 2 * 5] = consumed[2 * 4 : 2 * 5], consumed[2 * 2 : 2 * 3]
    assert judge(produced, consumed).counts == {"out of order": 1}


def test_messages_of_different_keys_may_change_places():
    produced, consumed = good()
    consumed[4:6], consumed[6:8] = consumed[6:8], consumed[4:6]
    assert judge(produced, consumed).good


@pytest.mark.parametrize(("break_ms", "allowed"), [(24, False), (25, True), (33, True), (40, True), (41, False)])
def test_a_second_copy_is_allowed_only_if_a_connection_broke_in_its_flight(break_ms, allowed):
    """Message 3 is sent at 30 ms and has its receipt at 35 ms; the log of the client is trusted to 5 ms."""
    produced, consumed = good()
    consumed += [delivered(3, 100, entry=50)]
    verdict = judge(produced, consumed, producer_breaks_ms=[break_ms])
    assert verdict.counts == ({} if allowed else {"duplicated": 1})
    assert verdict.second_copies == int(allowed)


def test_a_break_of_another_topic_excuses_nothing():
    produced, consumed = good()
    consumed += [delivered(3, 100, entry=50)]
    checker = Checker(breaks([33], topic=1), breaks([]))
    checker.producers(produced)
    checker.consumers(consumed)
    assert checker.end().counts == {"duplicated": 1}


def test_a_second_delivery_without_any_break_is_found():
    produced, consumed = good()
    assert judge(produced, [*consumed, delivered(3, 100)]).counts == {"delivered again": 1}


def test_a_second_delivery_of_what_was_settled_when_the_connection_broke_is_found():
    settled_ms = 36 + SETTLE_US // MS
    produced, consumed = good()
    late = [*consumed, delivered(3, settled_ms + 1000)]
    assert judge(produced, late, consumer_breaks_ms=[settled_ms + 100]).counts == {"delivered again": 1}
    verdict = judge(produced, late, consumer_breaks_ms=[settled_ms - 100])
    assert verdict.good
    assert verdict.second_deliveries == 1
    assert verdict.latest_again_us == SETTLE_US - 100 * MS


@pytest.mark.parametrize(
    ("hung_ms", "allowed"),
    [((40, 1540), True), ((40, 1490), False), ((2000, 3500), True), ((2040, 9000), False), ((0, 36), False)],
)
def test_time_in_which_a_broker_hung_settles_nothing(hung_ms, allowed):
    """Message 3 is acknowledged at 36 ms, and the connection breaks 1.5 s after it would be settled."""
    produced, consumed = good()
    break_ms = 36 + (SETTLE_US + CLOCK_US) // MS + 1500
    hung = [Break(hung_ms[0] * MS, hung_ms[1] * MS)]
    checker = Checker(breaks([]), breaks([break_ms]), hung=hung)
    checker.producers(produced)
    checker.consumers([*consumed, delivered(3, break_ms + 1000)])
    assert checker.end().counts == ({} if allowed else {"delivered again": 1})


def test_what_was_delivered_while_there_was_no_connection_may_come_again():
    """It waited in the client, and its acknowledgement was lost."""
    produced, consumed = good()
    again = [*consumed, delivered(3, 5000)]
    assert judge(produced, again, consumer_breaks_ms=[20], lasting_ms=100).good
    assert judge(produced, again, consumer_breaks_ms=[20], lasting_ms=5).counts == {"delivered again": 1}


def test_what_was_never_acknowledged_may_come_again_at_any_break_and_only_then():
    produced, consumed = good()
    consumed = [record for record in consumed if (record.what, record.sequence) != (What.ACKNOWLEDGED, 3)]
    again = [*consumed, delivered(3, 100_000)]
    assert judge(produced, again, consumer_breaks_ms=[90_000]).good
    assert judge(produced, again).counts == {"delivered again": 1}


def test_each_second_delivery_needs_a_break_of_its_own():
    produced, consumed = good()
    twice = [*consumed, delivered(3, 100), delivered(3, 200)]
    assert judge(produced, twice, consumer_breaks_ms=[50]).counts == {"delivered again": 1}
    assert judge(produced, twice, consumer_breaks_ms=[50, 150]).good


def test_what_nobody_sent_is_found():
    produced, consumed = good()
    assert judge(produced, [*consumed, delivered(9, 100)]).counts == {"strange": 1}
    assert judge(produced, [*consumed, Record(What.STRANGE, 0, 0, 0, 1)]).counts == {"strange": 1}


def test_a_failure_that_a_client_was_told_is_found():
    produced, consumed = good()
    produced += [sent(6, 60), Record(What.FAILED, 0, 0, 6, 65 * MS)]
    assert judge(produced, consumed).counts == {"failed": 1}


def test_what_was_at_risk_is_counted_at_the_moment_of_the_fault():
    risk = AtRisk(sent_us=[0, 10, 20], delivered_us=[5, 15], acknowledged_us=[6])
    for at_us in (5, 30):
        risk.receipt(0, at_us)
    risk.sort()
    assert [risk.unanswered(at_us) for at_us in (4, 5, 12, 29, 30)] == [1, 0, 1, 2, 1]
    assert risk.unacknowledged(6 + GROUPING_US - 1) == 2
    assert risk.unacknowledged(6 + GROUPING_US) == 1
    assert risk.stored(29) == 1


def test_the_longest_silence_is_that_of_one_topic_whatever_the_others_do():
    risk = AtRisk()
    for at_us in range(0, 1000, 10):
        risk.receipt(0, at_us)
        if not 300 <= at_us < 700:
            risk.receipt(1, at_us)
    risk.sort()
    assert risk.longest_silence_us(350, 400) == 410
    assert risk.longest_silence_us(0, 200) == 10
