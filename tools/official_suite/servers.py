"""A fresh server or cluster on the standard ports, with the tenants, namespaces and permissions that the suite takes
for granted.

The suite's own script of set-up has the same: apache/pulsar-client-python, build-support/, tests/test-conf/."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from bench.waiting import poll_until
from tools.demo.server import DemoError, Server
from tools.local_cluster.cluster import LocalCluster
from tools.local_cluster.errors import ClusterError
from tools.local_cluster.plan import Kind, Plan, conf_text
from tools.local_cluster.ports import free_ports
from tools.official_suite.errors import SuiteError
from tools.official_suite.front import front
from tools.official_suite.network import BROKER_PORT, BROKER_TLS_PORT, WEB_PORT, WEB_TLS_PORT
from tools.official_suite.security import ACTIONS, ADMINS, GRANTED, Security, make_security

SETTINGS: dict[str, object] = {"maxMessageSize": 1_024_000, "maxUnackedMessagesPerConsumer": 50_000}
TLS_PORTS: dict[str, object] = {"brokerServicePortTls": BROKER_TLS_PORT, "webServicePortTls": WEB_TLS_PORT}
ANY_TLS_PORTS: dict[str, object] = dict.fromkeys(TLS_PORTS, 0)
BROKERS, BOOKIES = 2, 3
WEB = f"http://127.0.0.1:{WEB_PORT}"
_THERE_ALREADY = 409
_REST_S = 30.0


class _Standalone(Server):
    """Server of the demo on the standard ports, with a configuration file."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.port, self.web_port = BROKER_PORT, WEB_PORT

    def command(self) -> list[str]:
        return [*super().command(), "--conf", str(self.folder / "standalone.conf")]


@contextmanager
def standalone(folder: Path, checkout: Path) -> Iterator[None]:
    """Run `quire standalone` with an empty data directory. Raises SuiteError."""
    security = make_security(checkout, folder)
    (folder / "standalone.conf").write_text(conf_text(SETTINGS | security.settings | TLS_PORTS))
    server = _Standalone(folder)
    try:
        server.start()
        _prepare(security)
        yield
        server.stop()
    except DemoError as error:
        raise SuiteError(str(error)) from None
    finally:
        server.abandon()


@contextmanager
def cluster(folder: Path, checkout: Path) -> Iterator[None]:
    """Run a cluster. Its first broker has the standard ports of clients and of TLS, and what follows redirects for
    clients of the REST has that of the web. Raises SuiteError."""
    security = make_security(checkout, folder)
    conf = {Kind.BROKER: SETTINGS | security.settings | ANY_TLS_PORTS}
    plan = Plan(brokers=BROKERS, bookies=BOOKIES, recoveries=0, conf=conf)
    with ExitStack() as always:
        try:
            [web_port] = free_ports(1, (BROKER_PORT, WEB_PORT))
            ports = {"broker1": (BROKER_PORT, web_port)}
            made = LocalCluster.make(folder / "cluster", plan, bound=True, ports=ports)
            [first, *_] = made.nodes(Kind.BROKER)
            with first.conf(made.folder).open("a") as lines:  # the last value of a key holds
                lines.write(conf_text(TLS_PORTS))
            always.callback(made.abandon)
            made.up()
        except ClusterError as error:
            raise SuiteError(str(error)) from None
        always.enter_context(front(WEB_PORT, f"http://127.0.0.1:{web_port}"))
        _prepare(security)
        yield
        killed = made.down()
        if killed:
            raise SuiteError(f"did not stop on SIGTERM: {', '.join(killed)}")


def _prepare(security: Security) -> None:
    clusters: list[str] = []

    def known() -> bool:
        clusters[:] = [each for each in _request(security, "GET", "clusters") or [] if each != "global"]
        return bool(clusters)

    if not poll_until(known, _REST_S):
        raise SuiteError(f"{WEB} names no cluster")
    for tenant, admins in ADMINS.items():
        info = {"adminRoles": admins, "allowedClusters": clusters}
        _request(security, "PUT", f"tenants/{tenant}", info)
        _request(security, "POST", f"tenants/{tenant}", info)  # one that the server had already
    for namespace, role in GRANTED.items():
        _request(security, "PUT", f"namespaces/{namespace}", {})
        _request(security, "POST", f"namespaces/{namespace}/permissions/{role}", ACTIONS)


def _request(security: Security, method: str, path: str, value: object = None) -> Any:
    """Call the admin interface, and return what it answers. Raises SuiteError; what exists already is no error."""
    body = None if value is None else json.dumps(value).encode()
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {security.token}"}
    request = urllib.request.Request(f"{WEB}/admin/v2/{path}", body, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=_REST_S) as answer:
            text = answer.read()
    except urllib.error.HTTPError as error:
        with error:
            if error.code == _THERE_ALREADY:
                return None
            raise SuiteError(f"{method} {path}: {error.code} {error.read().decode(errors='replace')}") from None
    except OSError as error:
        raise SuiteError(f"{method} {path}: {error}") from None
    return json.loads(text) if text else None
