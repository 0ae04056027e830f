"""`quire standalone` with authorization, and clients of a role without grants: nothing is open but what load balancers
ask."""

from __future__ import annotations

import base64
from pathlib import Path

from quire.wire.pulsar import PulsarApi_pb2 as pb
from tests.support import web
from tests.support.pulsar_frames import C
from tests.support.raw import RawClient
from tests.support.server import standalone

TOPIC = "persistent://public/default/a"


def test_without_a_grant_nothing_is_permitted(tmp_path: Path) -> None:
    settings: dict[str, object] = {
        "authenticationEnabled": "true",
        "authenticationProviders": "org.apache.pulsar.broker.authentication.AuthenticationProviderToken",
        "tokenSecretKey": f"data:;base64,{base64.b64encode(bytes(range(32))).decode()}",
        "anonymousUserRole": "guest",
        "authorizationEnabled": "true",
        "superUserRoles": "root,admin",
    }
    with standalone(tmp_path, settings) as server:
        for path, status in (
            ("/admin/v2/namespaces/public/default", 403),
            ("/admin/v2/persistent/public/default/a/stats", 401),
            ("/admin/v2/brokers/health", 401),
            ("/quire/loggers", 401),
            ("/admin/v2/clusters", 200),
            ("/status.html", 200),
        ):
            assert web.get(f"{server.web}{path}").status_code == status, path
        with RawClient(server.port) as client:
            client.ask_producer(TOPIC)
            assert client.expect(C.ERROR).error.error == pb.AuthorizationError
            client.ask_lookup(TOPIC)
            assert client.expect(C.LOOKUP_RESPONSE).lookupTopicResponse.error == pb.AuthorizationError
