"""The checker of a chaos run, with violations planted into good histories."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.datadriven import Line
from tests.support.dialogues import Dialogue, dialogues
from tools.chaos.checker import CLOCK_US, GROUPING_US, SETTLE_US, AtRisk, Checker
from tools.chaos.history import Break, Breaks, Record, What

MS = 1_000
KEYS = 2
SETTLE_MS = 2000


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


class Story:
    """A good history of six messages, what is planted into it, and the breaks of connections."""

    def __init__(self) -> None:
        self.produced, self.consumed = good()
        self.producer_breaks: dict[int, list[Break]] = {}
        self.consumer_breaks: dict[int, list[Break]] = {}
        self.hung: list[Break] = []

    def answer(self, step: Line) -> str:
        match step.name:
            case "lose":
                number = step.number()
                self.consumed = [each for each in self.consumed if each.sequence != number]
            case "no-receipt":
                self.produced.remove(receipt(number := step.number(), 10 * number + 5))
            case "misplace":
                number = step.number()
                at = self.produced.index(receipt(number, 10 * number + 5))
                self.produced[at] = receipt(number, 10 * number + 5, entry=step.number())
            case "swap":
                one, other = 2 * step.number(), 2 * step.number()
                history = self.consumed
                history[one : one + 2], history[other : other + 2] = history[other : other + 2], history[one : one + 2]
            case "no-ack":
                self.consumed.remove(acknowledged(number := step.number(), 10 * number + 6))
            case "again":
                number, at_ms = step.number(), step.number()
                self.consumed.append(delivered(number, at_ms, entry=step.option_number("entry", number)))
            case "strange":
                self.consumed.append(Record(What.STRANGE, 0, 0, 0, 1))
            case "fail":
                number, at_ms = step.number(), step.number()
                self.produced += [sent(number, at_ms), Record(What.FAILED, 0, 0, number, (at_ms + 5) * MS)]
            case "producer-breaks" | "consumer-breaks":
                lasting_ms, topic = step.option_number("lasting", 0), step.option_number("topic", 0)
                found = [Break(each * MS, (each + lasting_ms) * MS) for each in map(int, step.words)]
                step.words = []
                setattr(self, step.name.replace("-", "_"), {topic: found})
            case "hung":
                first, last = step.span()
                self.hung = [Break(first * MS, last * MS)]
            case "judge":
                return self.judge()
            case _:
                raise step.unknown()
        return ""

    def judge(self) -> str:
        checker = Checker(Breaks(self.producer_breaks), Breaks(self.consumer_breaks), hung=self.hung)
        checker.producers(self.produced)
        checker.consumers(self.consumed)
        verdict = checker.end()
        assert verdict.good == (not verdict.counts)
        told = [f"{name} {count}" for name, count in verdict.counts.items()] or ["good"]
        told += [f"unknown {verdict.unknown}"] * bool(verdict.unknown)
        told += [f"second copies {verdict.second_copies}"] * bool(verdict.second_copies)
        told += [
            f"second deliveries {verdict.second_deliveries}, the latest after {verdict.latest_again_us // MS} ms"
        ] * bool(verdict.second_deliveries)
        if "lost" in verdict.examples:
            told.append(verdict.examples["lost"][0].partition(":")[0])
        return ", ".join(told)


@pytest.mark.parametrize("dialogue", dialogues(Path(__file__).parent / "testdata" / "checker.txt"))
def test_a_history(dialogue: Dialogue) -> None:
    """Messages are sent every 10 ms, answered 5 ms later, and delivered and acknowledged 1 ms after that. Times are in
    milliseconds; `judge` may come again after more was planted."""
    dialogue.check(Story().answer)


def test_a_good_history_is_counted_and_the_text_has_the_times_of_the_checker():
    checker = Checker(Breaks({}), Breaks({}))
    produced, consumed = good()
    checker.producers(produced)
    checker.consumers(consumed)
    verdict = checker.end()
    assert (verdict.sent, verdict.receipts, verdict.delivered, verdict.unknown) == (6, 6, 6, 0)
    assert (SETTLE_US, CLOCK_US) == (SETTLE_MS * MS, 5 * MS)


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
