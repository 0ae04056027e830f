"""The packages of the extra `otel`: a server without tracing imports none, and one that lacks them says what to do."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from broker.tracing.config import TracingOptions
from quire.servers.tracing import open_tracing
from quire.service.errors import ConfigError
from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.world.doors import World
from tests.support.raw import RawClient
from tests.support.server import StandaloneProcess
from tests.support.waiting import wait_until

TOPIC = "persistent://public/default/t"
TRACED = [pb.KeyValue(key="traceparent", value="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")]
LATE = "broker.topics.topic_policies.events"
"""One of the modules that a server imports once it serves, through the last ones of `quire.servers.late_imports`."""
ON = TracingOptions(namespaces=("public/default",))


def imported(server: StandaloneProcess) -> set[str]:
    """Return the modules that import statements of the process have loaded; Python writes a line for each."""
    return set(re.findall(r"^import time: +\d+ \| +\d+ \| +(\S+)$", server.log(), re.MULTILINE))


@pytest.mark.real_clock
def test_a_server_without_tracing_imports_nothing_of_opentelemetry(tmp_path: Path) -> None:
    server = StandaloneProcess(tmp_path)
    server.command[1:1] = ["-X", "importtime"]
    try:
        server.start()
        with RawClient(server.port) as client:
            client.subscribe(TOPIC, "s")
            client.flow(10)
            client.producer(TOPIC)
            client.publish(b"a", properties=TRACED)
            client.message()
        wait_until(lambda: LATE in imported(server), f"{LATE} is imported")
        assert server.stop() == 0
    finally:
        server.kill()
    server.check_log()
    found = imported(server)
    assert {"quire.servers.tracing", "broker.tracing.tracing"} <= found
    assert not {name for name in found if name.split(".")[0] == "opentelemetry"}


@pytest.mark.parametrize(
    "missing", ["opentelemetry.sdk.trace", "opentelemetry.exporter.otlp.proto.http.trace_exporter"]
)
async def test_tracing_without_its_packages_is_refused_with_the_remedy(
    world: World, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(ConfigError, match=r"quireTracingNamespaces.*pip install 'quire-broker\[otel\]'") as raised:
        async with open_tracing(world, ON):
            pass
    assert missing in str(raised.value)
    async with open_tracing(world, TracingOptions()) as tracing:
        assert tracing is None
