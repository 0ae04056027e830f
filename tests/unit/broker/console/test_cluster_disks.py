"""Answers of bookies about their disks and journals, of Quire and of the original."""

from __future__ import annotations

import pytest

from broker.console.cluster_disks import journal_in, reason_in, thresholds_in

QUIRE = """
bookie_journal_JOURNAL_SYNC_count{success="true"} 12
bookie_journal_JOURNAL_MEMORY_USED 5
bookie_journal_JOURNAL_MEMORY_MAX 67108864
quire_bookie_journal_write_failures_total 1
bookie_ledgers_count 7
"""
ORIGINAL = """
bookie_journal_JOURNAL_SYNC{journalIndex="0",success="true",quantile="0.5"} 1.25
bookie_journal_JOURNAL_SYNC{journalIndex="0",success="true",quantile="0.99"} 8.5
bookie_journal_JOURNAL_SYNC{journalIndex="0",success="true",quantile="1.0"} Infinity
bookie_journal_JOURNAL_ADD_ENTRY{success="true",quantile="0.99"} NaN
bookie_journal_JOURNAL_SYNC{journalIndex="0",success="false",quantile="0.5"} 99
nonsense{
"""
HISTOGRAM = """
bookie_journal_JOURNAL_ADD_ENTRY_bucket{success="true",le="1.0"} 50
bookie_journal_JOURNAL_ADD_ENTRY_bucket{success="true",le="5.0"} 98
bookie_journal_JOURNAL_ADD_ENTRY_bucket{success="true",le="10.0"} 100
bookie_journal_JOURNAL_ADD_ENTRY_bucket{success="true",le="+Inf"} 100
"""


def test_a_bookie_of_quire_publishes_its_journal_and_no_latency() -> None:
    latencies, figures = journal_in(QUIRE)
    assert latencies == {}
    assert figures == {"syncs": 12.0, "queuedBytes": 5.0, "queuedBytesMax": 67108864.0}


def test_summaries_of_the_original_are_latencies_and_what_is_no_number_is_absent() -> None:
    assert journal_in(ORIGINAL)[0] == {"sync": {"p50": 1.25, "p99": 8.5}}


def test_figures_of_several_journals_are_added_and_the_slowest_latency_counts() -> None:
    text = """
bookie_journal_JOURNAL_SYNC{journalIndex="0",success="true",quantile="0.99"} 8.5
bookie_journal_JOURNAL_SYNC{journalIndex="1",success="true",quantile="0.99"} 2.5
bookie_journal_JOURNAL_SYNC{journalIndex="2",success="true",quantile="0.99"} NaN
bookie_journal_JOURNAL_SYNC_count{journalIndex="0",success="true"} 12
bookie_journal_JOURNAL_SYNC_count{journalIndex="1",success="true"} 3
bookie_journal_JOURNAL_MEMORY_USED{journalIndex="0"} 5
bookie_journal_JOURNAL_MEMORY_USED{journalIndex="1"} 6
bookie_journal_JOURNAL_MEMORY_MAX{journalIndex="0"} 100
bookie_journal_JOURNAL_MEMORY_MAX{journalIndex="1"} 100
"""
    latencies, figures = journal_in(text)
    assert latencies == {"sync": {"p99": 8.5}}
    assert figures == {"syncs": 15.0, "queuedBytes": 11.0, "queuedBytesMax": 200.0}


def test_histograms_give_the_upper_ends_of_their_buckets() -> None:
    assert journal_in(HISTOGRAM)[0] == {"add": {"p50": 1.0, "p99": 10.0}}


def test_thresholds_are_the_keys_that_the_bookie_has() -> None:
    assert thresholds_in(b'{"diskUsageThreshold" : "0.95", "bookiePort" : "3181"}') == {"diskUsageThreshold": "0.95"}
    for wrong in (b"[]", b"no"):
        with pytest.raises(ValueError, match=r"JSON|Expecting"):
            thresholds_in(wrong)


def test_a_bookie_says_why_it_is_read_only_and_one_of_the_original_does_not() -> None:
    assert reason_in(b'{"readOnly": true, "readOnlyReason": "no room on /data"}') == "no room on /data"
    assert reason_in(b'{"running": true, "readOnly": true}') == ""
    for bad in (b"[1]", b"no"):
        with pytest.raises(ValueError, match=r"object|Expecting"):
            reason_in(bad)
