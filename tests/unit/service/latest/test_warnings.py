"""The ring of the latest warnings: what the log writes, bounded, and nothing else."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pytest

from quire.service import log as logging
from quire.service.latest.warnings import LATEST, LINES_MAX, TEXT_MAX, WarningRing


@pytest.fixture(autouse=True)
def quiet() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    logging.configure("info", stream)
    yield stream
    logging.configure()


def event(text: str, **pairs: object) -> dict[str, object]:
    return {"timestamp": "t", "level": "warning", "logger": "x", "event": text, **pairs}


def test_warnings_and_errors_are_kept_as_they_are_written(quiet: io.StringIO) -> None:
    before = LATEST.newest
    log = logging.get_logger("here")
    log.info("nothing happened")
    log.warning("disk is slow", disk="a", ms=7)
    lines, left_off = LATEST.after(before)
    assert [(line.level, line.logger, line.event, line.text) for line in lines] == [
        ("warning", "here", "disk is slow", "disk=a ms=7")
    ]
    assert left_off == 0
    assert lines[0].timestamp in quiet.getvalue()


def test_a_logger_that_is_silenced_is_silent_here_too() -> None:
    before = LATEST.newest
    logging.set_level("noisy", "error")
    logging.get_logger("noisy").warning("again")
    logging.set_level("noisy", None)
    assert LATEST.newest == before


def test_the_ring_is_bounded_in_lines_and_bytes() -> None:
    ring = WarningRing()
    for number in range(LINES_MAX + 50):
        ring.keep(
            event("e" * 10_000, value="v" * 10_000, number=number, **{f"k{key}": "w" * 900 for key in range(200)})
        )
    lines, left_off = ring.after(0)
    assert (len(lines), left_off) == (LINES_MAX, 50)
    assert max(len(line.text) for line in lines) == TEXT_MAX
    assert max(len(line.event) for line in lines) == 200


def test_only_what_is_new_is_returned_and_the_rest_is_counted() -> None:
    ring = WarningRing(5)
    for number in range(8):
        ring.keep(event(str(number)))
    assert ([line.number for line in ring.after(6)[0]], ring.after(6)[1]) == ([7, 8], 0)
    assert ([line.number for line in ring.after(1)[0]], ring.after(1)[1]) == ([4, 5, 6, 7, 8], 2)
    assert ([line.number for line in ring.after(0, 2)[0]], ring.after(0, 2)[1]) == ([7, 8], 6)
    assert ring.after(8) == ([], 0)


def test_a_number_of_an_earlier_process_begins_again() -> None:
    ring = WarningRing()
    ring.keep(event("first"))
    assert [line.event for line in ring.after(900)[0]] == ["first"]
    assert WarningRing().after(900) == ([], 0)
