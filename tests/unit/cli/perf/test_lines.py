"""Lines of a run: quire/cli/perf/lines.py. They are searched for by scripts, so they are compared as a whole."""

from __future__ import annotations

from quire.cli.perf import lines
from quire.cli.perf.histogram import LatencyHistogram
from quire.cli.perf.lines import Throughput, TransactionCounts


def latencies(*values: int) -> LatencyHistogram:
    found = LatencyHistogram(1_000_000)
    for value in values:
        found.record(value)
    return found


US = latencies(*range(1000, 2001))
MS = latencies(1, 2, 3, 40)
COUNTED = Throughput(1000, 1_024_000, 10.0, 5)


def test_the_line_of_a_producer() -> None:
    assert lines.produced(12345, COUNTED, US) == (
        "Throughput produced:   12345 msg ---    100.0 msg/s ---      0.8 Mbit/s --- failure      0.5 msg/s"
        " --- Latency: mean:   1.500 ms - med:   1.500 - 95pct:   1.950 - 99pct:   1.990 - 99.9pct:   1.999"
        " - 99.99pct:   2.000 - Max:   2.000"
    )


def test_the_closing_lines_of_a_producer() -> None:
    assert lines.aggregated(COUNTED, sent=True) == (
        "Aggregated throughput stats --- 1000 records sent --- 100.000 msg/s --- 0.781 Mbit/s"
    )
    assert lines.aggregated_latency_us(US) == (
        "Aggregated latency stats --- Latency: mean:   1.500 ms - med:   1.500 - 95pct:   1.950 - 99pct:   1.990"
        " - 99.9pct:   1.999 - 99.99pct:   2.000 - 99.999pct:   2.000 - Max:   2.000"
    )


def test_the_lines_of_consumers_and_readers_have_whole_ms() -> None:
    shown = "Latency: mean: 11.500 ms - med: 2 - 95pct: 40 - 99pct: 40 - 99.9pct: 40 - 99.99pct: 40"
    end = f"   7 msg --- 100.000 msg/s --- 0.781 Mbit/s --- {shown} - Max: 40"
    assert lines.received(7, COUNTED, MS, reader=False) == f"Throughput received:    {end}"
    assert lines.received(7, COUNTED, MS, reader=True) == f"Read throughput:    {end}"
    assert lines.aggregated_latency_ms(MS) == f"Aggregated latency stats --- {shown} - 99.999pct: 40 - Max: 40"
    assert lines.aggregated(COUNTED, sent=False).startswith(
        "Aggregated throughput stats --- 1000 records received --- "
    )


def test_the_lines_of_transactions() -> None:
    counts = TransactionCounts(
        ended=8, not_ended=2, opened=11, not_opened=1, acknowledged=20, not_acknowledged=3, sent=30, not_sent=4
    )
    messages = (
        " --- 3 message ack failed --- 4 message send failed --- 20 message ack success --- 30 message send success"
    )
    assert lines.aggregated_transactions(counts, 4.0, tasks=False) == (
        "Aggregated throughput stats --- 10 transaction executed ---   2.500 transaction/s"
        " --- 11 transaction open successfully --- 1 transaction open failed"
        f" --- 8 transaction end successfully --- 2 transaction end failed{messages}"
    )
    assert lines.aggregated_transactions(counts, 4.0, tasks=True) == (
        f"Aggregated throughput stats --- 10 task executed --- 2.500 task/s{messages}"
    )
    assert lines.transactions_at_end(8, 2, 11, 1, 2.5) == (
        "--- Transaction: 8 transaction end successfully --- 2 transaction end failed"
        " --- 11 transaction open successfully --- 1 transaction open failed --- 2.500 Txn/s"
    )
    line = lines.transactions(10, 2.5, US, US, tasks=False)
    assert line.startswith("Throughput transaction:      10 ---   2.500/s --- SendLatency: mean:   1.500 ms - med: ")
    assert " --- AckLatency: mean:   1.500 ms - med:   1.500 - " in line


def test_a_load_tells_its_own_cost() -> None:
    assert lines.own_cost(2.0, 10.0, 1000, 0.0015) == (
        "Load generator stats --- 0.20 of a processor --- 2000.0 us CPU/msg"
        " --- latest message 1.500 ms behind its moment"
    )
    assert lines.own_cost(0.0, 0.0, 0, 0.0) == "Load generator stats --- 0.00 of a processor --- 0.0 us CPU/msg"
