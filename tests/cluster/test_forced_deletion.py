"""`forceDeleteNamespaceAllowed` and `forceDeleteTenantAllowed` of a standalone server, and SIGKILL in between."""

from __future__ import annotations

import threading
from pathlib import Path

import httpx2
import pytest

from quire.metadata.local.rows import load
from quire.world.real_look import look_into
from tests.support import web
from tests.support.raw import RawClient
from tests.support.server import StandaloneProcess, standalone
from tests.support.waiting import wait_until

pytestmark = pytest.mark.cluster
TENANT, NAMESPACE = "doomed-tenant", "doomed-tenant/doomed"
TOPICS = 30
ALLOWED: dict[str, object] = {"forceDeleteNamespaceAllowed": "true", "forceDeleteTenantAllowed": "true"}


def ask(server: StandaloneProcess, method: str, path: str, body: object = None) -> int:
    answer = web.request(method, f"{server.web}/admin/v2/{path}", json=body, timeout=30)
    return int(answer.status_code)


def fill(server: StandaloneProcess) -> None:
    """Make the tenant and its namespace with topics, messages, acknowledgements and policies."""
    assert ask(server, "PUT", f"tenants/{TENANT}", {"allowedClusters": ["standalone"], "adminRoles": []}) == 204
    assert ask(server, "PUT", f"namespaces/{NAMESPACE}") == 204
    assert ask(server, "PUT", f"persistent/{NAMESPACE}/parts/partitions", 4) == 204
    assert ask(server, "POST", f"persistent/{NAMESPACE}/t0/maxProducers", 9) in (204, 404)
    with RawClient(server.port) as client:
        for number in range(TOPICS):
            topic = f"persistent://{NAMESPACE}/t{number}"
            client.producer(topic, producer_id=number)
            client.subscribe(topic, consumer_id=number)
            client.publish(b"x", sequence_id=0, producer_id=number)


def left(server: StandaloneProcess) -> list[str]:
    """Return the nodes of a stopped server that have the name in their path or value, ledgers among them.
    Folders, which are empty, are left out."""
    rows = look_into(str(server.data / "metadata"))
    try:
        nodes = load(rows).nodes
    finally:
        rows.close()
    return [path for path, node in nodes.items() if (node.value and "doomed" in path) or b"doomed" in node.value]


@pytest.mark.parametrize("what", [f"namespaces/{NAMESPACE}", f"tenants/{TENANT}"])
def test_a_kill_in_the_middle_of_a_forced_deletion_leaves_what_can_be_deleted_again(tmp_path: Path, what: str) -> None:
    with standalone(tmp_path, ALLOWED) as server:
        fill(server)
        assert ask(server, "DELETE", what) == 409, "not by mistake"

        def delete() -> None:
            try:
                ask(server, "DELETE", f"{what}?force=true")
            except httpx2.HTTPError:
                pass  # it is killed

        deleting = threading.Thread(target=delete)
        deleting.start()
        wait_until(lambda: server.log().count('event="topic deleted"') >= 3, "some topics are deleted")
        server.kill()
        deleting.join()
        before = left(server)
        assert [each for each in before if each.startswith("/ledgers/")], "it was killed too late"
        server.start()
        assert ask(server, "PUT", f"persistent/{NAMESPACE}/new") == 404, "its namespace is being deleted"
        assert ask(server, "DELETE", f"{what}?force=true") == 204
        assert ask(server, "GET", f"namespaces/{NAMESPACE}") == 404
        assert ask(server, "DELETE", f"tenants/{TENANT}") == (404 if what.startswith("tenants") else 204)
        server.kill()
        assert left(server) == []
        server.start()


def test_a_server_without_the_keys_deletes_nothing_by_force_until_they_are_set_while_it_runs(tmp_path: Path) -> None:
    with standalone(tmp_path) as server:
        fill(server)
        assert ask(server, "DELETE", f"namespaces/{NAMESPACE}?force=true") == 405
        assert ask(server, "DELETE", f"tenants/{TENANT}?force=true") == 405
        assert ask(server, "POST", "brokers/configuration/forceDeleteTenantAllowed/true") == 200
        assert ask(server, "DELETE", f"tenants/{TENANT}?force=true") == 204
        assert ask(server, "GET", f"tenants/{TENANT}") == 404
