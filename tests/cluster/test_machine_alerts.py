"""Faults of the machine and of certificates under a real Prometheus: each alert fires on its fault and ends with it.

The server is in a mount namespace of its own, which ends with it. Its data is on a small disk in memory, and the
machine's memory is what the test says.
"""

from __future__ import annotations

import datetime
import os
import shlex
import shutil
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
import trio

from quire.client.client import open_client
from quire.client.packing import pack
from quire.world.real import real_world
from tests.support.certificates import Authority, Pair
from tests.support.monitoring import ends, fires, firing, scraping
from tests.support.server import StandaloneProcess, free_port
from tools.monitoring.alert_table import CERTIFICATE_DAYS
from tools.monitoring.prometheus import Prometheus

pytestmark = [pytest.mark.cluster, pytest.mark.full, pytest.mark.real_clock]
DISK = 128 << 20
FILLING = 0.1
"""Part of the disk that stays free when it is filling; it is enough for the server to take messages."""
FULL = 0.02
NO_ROOM = ("QuireDiskFilling", "QuireDiskFull", "QuireBrokerNotReady", "QuireBookieReadOnly")
PLANTED = {*NO_ROOM, "QuireCertificateExpiresSoon", "QuireMemoryNearBound"}
"""Alerts of these faults; a slow machine may make others fire."""
SMALL = 1.25
"""Memory of the machine, as a multiple of what a server without traffic needs."""


class Confined(StandaloneProcess):
    """A server with a small disk, and with `memory` bytes in its machine."""

    def __init__(self, folder: Path, conf: dict[str, object], memory: int) -> None:
        super().__init__(folder, conf)
        self.data.mkdir()
        meminfo = folder / "meminfo"
        meminfo.write_text(f"MemTotal: {memory // 1024} kB\n")
        steps = (
            shlex.join(["mount", "-t", "tmpfs", "-o", f"size={DISK}", "none", str(self.data)]),
            shlex.join(["mount", "--bind", str(meminfo), "/proc/meminfo"]),
            'exec "$@"',
        )
        user = [] if os.getuid() == 0 else ["--map-root-user"]
        self.command = ["unshare", "--mount", *user, "sh", "-c", " && ".join(steps), "sh", *self.command]

    def leave_free(self, part: float) -> None:
        """Fill the disk with one file, so that this part of its size stays free."""
        assert self.process is not None
        data = Path(f"/proc/{self.process.pid}/root{self.data}")
        with open(data / "ballast", "ab") as file:
            found = os.statvfs(data)
            size = found.f_bavail * found.f_frsize - int(part * DISK)
            assert size > 0
            os.posix_fallocate(file.fileno(), file.tell(), size)

    def free_again(self) -> None:
        """Remove the file that fills the disk."""
        assert self.process is not None
        Path(f"/proc/{self.process.pid}/root{self.data}/ballast").unlink()


@contextmanager
def confined(folder: Path, conf: dict[str, object], memory: int) -> Iterator[Confined]:
    server = Confined(folder, conf, memory)
    try:
        yield server.start()
    finally:
        server.kill()
    server.check_log()


def used_memory(folder: Path, conf: dict[str, object]) -> int:
    """Return the bytes of memory that such a server uses without traffic."""
    with confined(folder, conf, 64 << 30) as server:
        return int(server.metric("process_resident_memory_bytes"))


def handshake(port: int, authority: Authority) -> None:
    """Connect once: servers look at the files of certificates when a connection is made."""
    context = ssl.create_default_context(cafile=str(authority.trust))
    with (
        socket.create_connection(("127.0.0.1", port), 10) as raw,
        context.wrap_socket(raw, server_hostname="localhost"),
    ):
        pass


def days_from_now(days: float) -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=days)


def put(pair: Pair, found: Pair) -> None:
    """Replace a certificate and its key."""
    shutil.copy(found.key, pair.key)
    shutil.copy(found.certificate, pair.certificate)


async def only(server: Prometheus, *names: str) -> None:
    """Wait until the alerts of the names fire, and check that those of the other faults do not."""
    for name in names:
        await fires(server, name)
    assert await firing(server) & PLANTED <= set(names)


async def test_certificate_disk_and_memory_have_alerts_that_fire_on_their_faults_only(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    shown = authority.issue("localhost", file="shown", ends=days_from_now(CERTIFICATE_DAYS + 1))
    long = authority.issue("localhost", file="long", ends=days_from_now(CERTIFICATE_DAYS + 1))
    short = authority.issue("localhost", file="short", ends=days_from_now(CERTIFICATE_DAYS - 1))
    conf: dict[str, object] = {
        "brokerServicePortTls": (tls_port := free_port()),
        "tlsCertificateFilePath": shown.certificate,
        "tlsKeyFilePath": shown.key,
        "tlsCertRefreshCheckDurationSec": 1,
        "statsUpdateFrequencyInSecs": 1,
    }
    memory = int(SMALL * used_memory(tmp_path / "measured", conf))
    with (
        confined(tmp_path / "server", conf, memory) as server,
        scraping(tmp_path / "prometheus", {"quire-standalone": [f"127.0.0.1:{server.web_port}"]}) as prometheus,
    ):
        server.announced.append("no room")
        look = partial(trio.to_thread.run_sync, handshake, tls_port, authority)

        async def connect_forever() -> None:
            while True:
                await look()
                await trio.sleep(1)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(connect_forever)
            put(shown, short)
            await only(prometheus, "QuireCertificateExpiresSoon")
            put(shown, long)
            await ends(prometheus, "QuireCertificateExpiresSoon")

            server.leave_free(FILLING)
            await only(prometheus, "QuireDiskFilling")
            server.leave_free(FULL)
            await only(prometheus, *NO_ROOM)
            server.free_again()
            for name in NO_ROOM:
                await ends(prometheus, name)

            assert await firing(prometheus) & PLANTED == set()
            async with open_client(real_world(), server.url) as client, trio.open_nursery() as load:

                async def publish() -> None:
                    """Publish messages, which the server keeps in its caches: its memory grows."""
                    producer = await client.producer("persistent://public/default/t")
                    for _ in range(60):
                        await producer.send(pack([b"x" * (1 << 16)] * 8, batch=False))
                        await producer.flush()

                load.start_soon(publish)
                await only(prometheus, "QuireMemoryNearBound")
                load.cancel_scope.cancel()
            nursery.cancel_scope.cancel()
