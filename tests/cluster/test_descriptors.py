"""A server whose clients take every descriptor: its files still get theirs, it logs the shortage, and it continues."""

from __future__ import annotations

import os
import resource
import socket
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from quire.service.serve import ACCEPT_QUIET_S
from tests.support import web
from tests.support.process import wait_until
from tests.support.raw import RawClient
from tests.support.server import standalone

pytestmark = pytest.mark.cluster
TOPIC = "persistent://public/default/few"
BEGAN, OVER = "accepting no connections until descriptors are free", "accepting connections again"


@pytest.mark.parametrize("limit", [64, pytest.param(256, marks=pytest.mark.full)])
def test_clients_that_take_all_descriptors_leave_those_for_files(limit: int, tmp_path: Path) -> None:
    with standalone(tmp_path, {"flushInterval": 200}) as server, ExitStack() as stack:
        client = stack.enter_context(RawClient(server.port))
        client.producer(TOPIC)
        assert server.process is not None
        pid = server.process.pid
        _, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (limit, hard))
        crowd = [
            stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            for port in (server.port, server.web_port)
            for _ in range(limit)
        ]
        wait_until(lambda: server.log().count(BEGAN) == 2, "both ports pause")
        ends = time.monotonic() + 1.0
        sent = 0
        while time.monotonic() < ends:  # five checkpoints
            client.publish(b"x" * 4096, sequence_id=sent)
            sent += 1
            assert len(os.listdir(f"/proc/{pid}/fd")) <= limit
        for each in crowd:
            each.close()
        with RawClient(server.port) as late:
            late.producer(TOPIC)
            late.publish(b"m")
        assert web.get(f"{server.web}/status.html", timeout=10).text == "OK"
        wait_until(lambda: server.log().count(OVER) == 2, "both ports go on", seconds=ACCEPT_QUIET_S + 10)
        lines = server.log().splitlines()
        assert sum(BEGAN in line for line in lines) == 2
        assert not [line for line in lines if "Traceback" in line or "checkpoint failed" in line]
