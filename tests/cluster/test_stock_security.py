"""A standalone.conf of the original with security switched on, as a process: no client is served without a role."""

from __future__ import annotations

from pathlib import Path

import pytest

from quire.service.original_keys import PULSAR
from quire.wire.pulsar import PulsarApi_pb2 as pb
from tests.support import web
from tests.support.credentials import DATA_URL, TOKEN, token
from tests.support.pulsar_frames import C
from tests.support.raw import RawClient
from tests.support.server import standalone
from tests.support.stock_conf import stock

pytestmark = pytest.mark.cluster


def test_a_stock_standalone_conf_with_security_switched_on_starts_secured(tmp_path: Path) -> None:
    conf = stock(
        (PULSAR,),
        authenticationEnabled="true",
        authorizationEnabled="true",
        authenticationProviders=TOKEN,
        tokenSecretKey=DATA_URL,
        superUserRoles="admin",
        brokerClientAuthenticationPlugin="org.apache.pulsar.client.impl.auth.AuthenticationToken",
        brokerClientAuthenticationParameters=f"token:{token('admin')}",
        **{f"managedLedgerDefault{each}": "1" for each in ("EnsembleSize", "WriteQuorum", "AckQuorum")},
    )
    with standalone(tmp_path, dict(conf)) as server:
        url = f"{server.web}/admin/v2/tenants?token={token('admin')}"
        with RawClient(server.port, connect=False) as plain:
            plain.ask_connect()
            assert plain.expect(C.ERROR).error.error == pb.AuthenticationError
            assert plain.closed_by_server()
        assert web.get(url, timeout=10).status_code == 401
        known = {"Authorization": f"Bearer {token('admin')}"}
        assert web.get(f"{server.web}/admin/v2/tenants", headers=known, timeout=10).status_code == 200
        other = {"Authorization": f"Bearer {token('bob')}"}
        assert web.get(f"{server.web}/admin/v2/tenants", headers=other, timeout=10).status_code in (401, 403)
        assert token("admin") not in server.log(), "a token in a URL is not logged"
