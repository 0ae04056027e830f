"""A programming error in a callback ends a running server in order: one ERROR with the traceback, a reason on the last
line, an exit code. All acknowledged data exist after the next start.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pulsar
import pytest

from tests.support.server import StandaloneProcess

TOPIC = "persistent://public/default/t"

PLANTED = {
    "a confirmation": """
from broker.topics.producer import Producer
Producer.confirmed = boom
""",
    "the turn": """
from quire.world.outbox import Turn
mark = Turn.mark
Turn.mark = lambda self, outbox: (self.later(boom), mark(self, outbox))
""",
    "the deadline wheel": """
from quire.ledger.bookies.deadlines import DeadlineWheel
class Late:
    tick = boom
watch = DeadlineWheel.watch
DeadlineWheel.watch = lambda self, watched: (watch(self, watched), watch(self, Late()))
""",
    "an afterwards": """
from quire.ledger.context import Afterwards
from quire.ledger.writing.appender import Appender
confirmed = Appender._report_confirmed
def report(self, *arguments):
    confirmed(self, *arguments)
    self._context.afterwards.call(boom)
Appender._report_confirmed = report
""",
    "a lane": """
from bookie.journal.writer import Journal
Journal._done = boom
""",
}
"""Lines that plant a mistake, by where it is."""

HEAD = """
def boom(*arguments):
    raise KeyError("planted")
"""
TAIL = """
from quire.cli.main import main
main()
"""


USUAL = ("a confirmation", "a lane")
"""On the loop and in a thread; the others run with `--full`."""


@pytest.mark.parametrize(
    "where", [pytest.param(where, marks=() if where in USUAL else pytest.mark.full) for where in PLANTED]
)
def test_a_mistake_in_a_callback_ends_the_server_in_order_with_a_reason(tmp_path: Path, where: str) -> None:
    server = StandaloneProcess(tmp_path)
    server.announced = ["internal error, the server ends"]
    ours = server.command
    try:
        # (`standalone` and its options follow the program in the arguments, as they do behind `quire`.)
        server.command = [sys.executable, "-c", HEAD + PLANTED[where] + TAIL, "standalone"]
        server.start()
        client = pulsar.Client(
            server.url, operation_timeout_seconds=3, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
        )
        acknowledged = False
        try:
            producer = client.create_producer(TOPIC, send_timeout_millis=2000)
            producer.send(b"one")
            acknowledged = True
        except pulsar.PulsarException:
            pass  # the server has ended, as it should
        assert server.wait_ended() == 1
        client.close()
        lines = server.said().splitlines()
        [error] = [line for line in lines if "level=error" in line]
        assert "Traceback" in error
        assert "in boom" in error
        assert "reason=KeyError('planted')" in error
        assert lines[-1].startswith("quire standalone: internal error in ")
        assert lines[-1].endswith("KeyError('planted'); its traceback is in the log")
        assert "TrioInternalError" not in server.said()

        server.command = ours
        server.start()
        if acknowledged:
            client = pulsar.Client(server.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
            reader = client.create_reader(TOPIC, pulsar.MessageId.earliest)
            assert reader.read_next(timeout_millis=10_000).data() == b"one"
            client.close()
        assert server.stop() == 0
        server.check_log()
    finally:
        server.kill()
