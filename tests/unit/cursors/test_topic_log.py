"""Tests of cursors.topic_log."""

from __future__ import annotations

from cursors.topic_log import topic_log
from quire.service.log import Event, get_logger
from quire.wire.pulsar.names import TopicName


def test_lines_of_a_managed_ledger_name_the_topic_as_the_broker_does(log_events: list[Event]) -> None:
    name = TopicName.parse("persistent://a/b/ä topic/with: signs")
    topic_log(get_logger("x"), name.managed_ledger_path, cursor="c").info("rolled", ledger=7)
    assert log_events[-1]["topic"] == name.full
    assert log_events[-1]["managed_ledger"] == name.managed_ledger_path
    assert (log_events[-1]["cursor"], log_events[-1]["ledger"]) == ("c", 7)


def test_a_name_that_is_no_topics_has_lines_all_the_same(log_events: list[Event]) -> None:
    topic_log(get_logger("x"), "health").info("rolled")
    assert log_events[-1]["managed_ledger"] == "health"
    assert "topic" not in log_events[-1]
