"""A bookie whose web port has TLS registers it as https, and a broker reads it with its TLS to bookies."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import trio

from broker.console.cluster_disks import thresholds_in
from broker.console.cluster_sources import fetched
from quire.metadata.bookies import service_info, web_url
from quire.metadata.ledgers import initialize_layout
from quire.metadata.local.memory import MemoryStore, MemoryTree
from quire.servers.bookie.config import BOOKIE
from quire.servers.bookie.located import located
from quire.servers.bookie.process import Ready, serve
from quire.servers.tls import open_client_tls
from quire.world.real import real_world
from tests.support.certificates import Authority


@pytest.mark.real_clock
async def test_the_web_port_is_registered_as_https_and_read_with_the_certificate_of_a_broker(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    own = authority.issue("127.0.0.1", file="bookie")
    store_file = tmp_path / "bookie.store.pem"
    store_file.write_bytes(own.certificate.read_bytes() + own.key.read_bytes())
    keys = {
        "advertisedAddress": "127.0.0.1",
        "bookiePort": 0,
        "allowEphemeralPorts": True,
        "allowLoopback": True,
        "listeningInterface": "lo",
        "journalDirectories": (str(tmp_path / "journal"),),
        "ledgerDirectories": (str(tmp_path / "ledgers"),),
        "journalPreAllocSizeMB": 1,
        "httpServerEnabled": True,
        "httpServerHost": "127.0.0.1",
        "httpServerPort": 0,
        "httpServerTlsEnable": True,
        "httpServerKeyStorePath": str(store_file),
        "httpServerTrustStorePath": str(authority.trust),
    }
    world, store = real_world(1), MemoryStore(MemoryTree())
    await initialize_layout(store, rng=world.rng)
    stop, there, ids = trio.Event(), trio.Event(), list[str]()

    def ready(found: Ready) -> None:
        ids.append(found.config.id)
        there.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: serve(world, located(BOOKIE.build(keys), "/ledgers"), store, ready=ready, stop=stop))
        with trio.fail_after(30):
            await there.wait()
            info = await service_info(store, ids[0])
        assert info is not None
        url = f"{web_url(info)}/api/v1/config/server_config"
        assert url.startswith("https://127.0.0.1:")
        certified = authority.client(authority.issue("127.0.0.1", file="broker"))
        tls = await open_client_tls(world, certified, name="bookies", refresh_s=math.inf)
        with trio.fail_after(30):
            assert "quireDiskReserveMb" in thresholds_in(await fetched(world.network, tls, url))
            with pytest.raises(OSError, match="needs bookkeeperTLSClientAuthentication=true"):
                await fetched(world.network, None, url)
            anonymous = await open_client_tls(world, authority.client(), name="bookies", refresh_s=math.inf)
            with pytest.raises(OSError, match=r"https://"):
                await fetched(world.network, anonymous, url)
        stop.set()
