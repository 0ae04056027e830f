"""quire.service.log"""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Iterator

import pytest

from quire.service import log
from tests.support.refusals import refuses


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    log.configure("info", stream, wall_ms=lambda: 1_700_000_000_123)
    yield stream
    log.configure()


def test_an_event_is_one_line_of_pairs_in_a_fixed_order(written: io.StringIO) -> None:
    log.get_logger("bookie.bookie").info("ledger created", ledger_id=7, path="a b", ok=True, none=None)
    assert written.getvalue() == (
        "timestamp=2023-11-14T22:13:20.123Z level=info logger=bookie.bookie "
        'event="ledger created" ledger_id=7 path="a b" ok=true none=\n'
    )


@pytest.mark.expect_error("failed")
def test_a_traceback_stays_on_the_events_line(written: io.StringIO) -> None:
    try:
        raise ValueError("no\ngood")
    except ValueError:
        log.get_logger("x").exception("failed", topic="t")
    assert written.getvalue().count("\n") == 1
    assert "ValueError: no\\ngood" in written.getvalue()


def test_lines_below_the_level_are_not_written(written: io.StringIO) -> None:
    logger = log.get_logger("x")
    logger.debug("quiet")
    logger.info("loud")
    assert written.getvalue().count("event=") == 1
    log.configure("warning", written)
    logger.info("now quiet")
    assert "now quiet" not in written.getvalue()


def test_bound_pairs_are_on_every_event(written: io.StringIO) -> None:
    log.get_logger("x").bind(topic="t").info("one", n=1)
    assert "event=one topic=t n=1" in written.getvalue()


def test_tests_see_events_of_every_level(written: io.StringIO) -> None:
    with log.captured() as events:
        log.get_logger("x").debug("quiet", n=1)
    log.get_logger("x").info("after")
    assert events == [{"level": "debug", "logger": "x", "event": "quiet", "n": 1}]


def test_a_log_that_cannot_be_written_stops_nothing(written: io.StringIO) -> None:
    written.close()
    log.get_logger("x").info("lost")


def test_a_level_that_does_not_exist_is_refused() -> None:
    refuses(ValueError, lambda: log.configure("loud"), "'loud' is no log level")


def test_structlog_is_not_loaded_before_the_first_line() -> None:
    code = (
        "import sys; from quire.service.log import get_logger; log = get_logger('x'); log.debug('quiet')\n"
        "assert 'structlog' not in sys.modules; log.info('loud'); assert 'structlog' in sys.modules"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "event=loud" in ran.stderr


def test_a_logger_and_those_below_it_can_have_a_level_of_their_own(written: io.StringIO) -> None:
    log.configure(
        "warning", written, levels=log.parse_levels(["broker.dispatch=debug", "broker.dispatch.consumer=error"])
    )
    for name in (
        "broker",
        "broker.dispatch",
        "broker.dispatch.subscription",
        "broker.dispatch.consumer",
        "broker.dispatcher",
    ):
        log.get_logger(name).info("heard", of=name)
    heard = [line.rpartition("of=")[2] for line in written.getvalue().splitlines()]
    assert heard == ["broker.dispatch", "broker.dispatch.subscription"]


def test_a_level_changes_while_loggers_are_in_use(written: io.StringIO) -> None:
    logger = log.get_logger("a.b").bind(topic="t")
    logger.debug("one")
    log.set_level("a", "debug")
    logger.debug("two")
    log.set_level("a", None)
    logger.debug("three")
    log.set_level("", "debug")
    logger.debug("four")
    assert [line.split("event=")[1].split(" ")[0] for line in written.getvalue().splitlines()] == ["two", "four"]
    assert log.levels() == {"": "debug"}


@pytest.mark.parametrize(
    ("pair", "reason"),
    [
        ("broker", "'broker' is not of the form logger=level"),
        ("broker=loud", "'loud' is no log level"),
        ("bro ker=info", "'bro ker' is not the name of a logger"),
        ("a..b=info", "'a..b' is not the name of a logger"),
    ],
)
def test_a_wrong_level_of_a_logger_is_refused_with_its_key(pair: str, reason: str) -> None:
    refuses(ValueError, lambda: log.parse_levels(["cursors=info", pair]), f"quireLogLevels: {reason}")
    refuses(ValueError, lambda: log.parse_levels(["cursors=info", "cursors=debug"]), "cursors is there twice")


@pytest.mark.expect_error("failed")
def test_of_a_group_the_log_has_the_tracebacks_of_its_leaves(log_events: list[log.Event]) -> None:
    def deep() -> None:
        raise KeyError("deep")

    try:
        try:
            deep()
        except KeyError as error:
            raise ExceptionGroup("a nursery", [ExceptionGroup("another", [error]), OSError("gone")]) from None
    except ExceptionGroup:
        log.get_logger("x").exception("failed")
    text = log_events[-1]["exception"]
    assert "in deep" in text
    assert "OSError: gone" in text
    assert "nursery" not in text
