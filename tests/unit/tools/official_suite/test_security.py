"""TLS, roles and permissions of the servers of scripts/official-suite."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tools.local_cluster.cluster import LocalCluster
from tools.local_cluster.errors import ClusterError
from tools.local_cluster.plan import Kind
from tools.official_suite import servers
from tools.official_suite.errors import SuiteError
from tools.official_suite.security import Security, make_security


class Rest(ThreadingHTTPServer):
    """The REST of a server that has the tenant `public` and its namespace `default` already."""

    def __init__(self) -> None:
        self.tenants: dict[str, list[str]] = {"public": []}
        self.granted: dict[str, dict[str, list[str]]] = {"public/default": {}}
        super().__init__(("127.0.0.1", 0), Handler)


class Handler(BaseHTTPRequestHandler):
    server: Rest

    def do_GET(self) -> None:
        self._answer(200, b'["here"]')

    def do_PUT(self) -> None:
        kind, name, body = self._asked()
        if kind == "tenants":
            there = name in self.server.tenants
            self.server.tenants.setdefault(name, body["adminRoles"])
        else:
            there = name in self.server.granted
            self.server.granted.setdefault(name, {})
        self._answer(409 if there else 204)

    def do_POST(self) -> None:
        kind, name, body = self._asked()
        if kind == "tenants":
            self.server.tenants[name] = body["adminRoles"]
        else:
            namespace, _, role = name.partition("/permissions/")
            self.server.granted[namespace][role] = body
        self._answer(204)

    def _asked(self) -> tuple[str, str, Any]:
        assert self.headers["Authorization"] == "Bearer own"
        kind, _, name = self.path.removeprefix("/admin/v2/").partition("/")
        return kind, name, json.loads(self.rfile.read(int(self.headers["Content-Length"])))

    def _answer(self, status: int, text: bytes = b"") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def rest(monkeypatch: pytest.MonkeyPatch) -> Iterator[Rest]:
    with Rest() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        monkeypatch.setattr(servers, "WEB", f"http://127.0.0.1:{server.server_address[1]}")
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "checkout" / "tests").mkdir(parents=True)
    return tmp_path / "checkout"


def test_a_tenant_and_a_namespace_that_are_there_already_get_their_roles_too(rest: Rest) -> None:
    servers._prepare(Security({}, "own"))
    assert rest.tenants == {"public": ["anonymous"], "private": []}
    both = ["produce", "consume"]
    assert rest.granted == {
        "public/default": {"anonymous": both},
        "public/default-2": {"anonymous": both},
        "private/auth": {"token-principal": both},
    }


def test_only_the_first_broker_has_the_standard_ports_of_tls(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last value of a key holds."""
    made: list[LocalCluster] = []

    def up(cluster: LocalCluster) -> None:
        made.append(cluster)
        raise ClusterError("far enough")

    monkeypatch.setattr(LocalCluster, "up", up)
    with pytest.raises(SuiteError, match="far enough"), servers.cluster(tmp_path, checkout):
        pass
    found = []
    for node in made[0].nodes(Kind.BROKER):
        conf = dict(line.split("=", 1) for line in node.conf(made[0].folder).read_text().splitlines())
        found.append((conf["brokerServicePortTls"], conf["webServicePortTls"]))
    assert found == [("6651", "8443"), ("0", "0")]


def test_the_tests_get_a_token_and_clients_need_permissions(checkout: Path, tmp_path: Path) -> None:
    security = make_security(checkout, tmp_path)
    assert (checkout / "tests" / ".test-token.txt").read_text().count(".") == 2
    assert security.settings["authorizationEnabled"] == security.settings["authenticationEnabled"] == "true"
    assert security.token not in repr(security)
    for key, name in (("tlsCertificateFilePath", "broker-cert.pem"), ("tlsKeyFilePath", "broker-key.pem")):
        assert security.settings[key] == checkout / "tests" / "test-conf" / name
