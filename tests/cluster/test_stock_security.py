"""The files that the originals ship with security switched on, as processes: no client is served without a role.

tests/golden/stock has the files."""

from __future__ import annotations

from pathlib import Path

import pytest

from quire.wire.pulsar import PulsarApi_pb2 as pb
from tests.support import web
from tests.support.broker_process import BrokerCluster
from tests.support.credentials import DATA_URL, TOKEN, token
from tests.support.pulsar_frames import C
from tests.support.raw import RawClient
from tests.support.server import standalone
from tests.support.stock_conf import shipped
from tests.support.zookeeper import shared_server

pytestmark = pytest.mark.cluster
SECURED = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "authenticationProviders": TOKEN,
    "tokenSecretKey": DATA_URL,
    "superUserRoles": "admin",
    "brokerClientAuthenticationPlugin": "org.apache.pulsar.client.impl.auth.AuthenticationToken",
    "brokerClientAuthenticationParameters": f"token:{token('admin')}",
}
"""Switches that an operator sets."""
ONE_COPY = {f"managedLedgerDefault{each}": "1" for each in ("EnsembleSize", "WriteQuorum", "AckQuorum")}


def check(port: int, place: str) -> None:
    """Check that a server lets in who has a token of a role with a permission, on both ports, and no one else."""
    with RawClient(port, connect=False) as plain:
        plain.ask_connect()
        assert plain.expect(C.ERROR).error.error == pb.AuthenticationError
        assert plain.closed_by_server()
    url = f"{place}/admin/v2/tenants"
    assert web.get(f"{url}?token={token('admin')}", timeout=10).status_code == 401
    known = {"Authorization": f"Bearer {token('admin')}"}
    assert web.get(url, headers=known, timeout=10).status_code == 200
    other = {"Authorization": f"Bearer {token('bob')}"}
    assert web.get(url, headers=other, timeout=10).status_code in (401, 403)


def test_a_shipped_standalone_conf_with_security_switched_on_starts_secured(tmp_path: Path) -> None:
    conf: dict[str, object] = {**shipped("standalone.conf", **SECURED), **ONE_COPY}
    with standalone(tmp_path, conf) as server:
        check(server.port, server.web)
        assert token("admin") not in server.log(), "a token in a URL is not logged"


def test_a_shipped_broker_conf_with_security_switched_on_starts_secured_on_a_bookie_with_the_shipped_conf(
    tmp_path: Path,
) -> None:
    cluster = BrokerCluster(tmp_path, shared_server(), bookies=0)
    bookie = cluster.bookie(**shipped("bk_server.conf"))
    broker = cluster.broker(**shipped("broker.conf", **SECURED), **ONE_COPY)
    try:
        cluster.start_bookies()
        broker.start()
        check(broker.port, f"http://127.0.0.1:{broker.web_port}")
        assert token("admin") not in broker.log()
        broker.check_log()
        bookie.check_log()
    finally:
        cluster.end()
