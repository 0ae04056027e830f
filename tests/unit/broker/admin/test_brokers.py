"""Brokers and bookies over REST"""

from __future__ import annotations

from broker.ownership.bundles import even
from broker.ownership.values import LocalBroker, encode_leader
from quire.wire.pulsar.names import NamespaceName
from tests.unit.broker.admin.cluster_fakes import ClusterRest, on_cluster


async def test_brokers_and_bookies_are_told(rest: ClusterRest) -> None:
    brokers = "/admin/v2/brokers"
    assert await rest.get(brokers) == ["broker:8080"]
    for name in ("a:8080", "b:8080"):
        report = b'{"webServiceUrl":"http://%s","pulsarServiceUrl":"pulsar://x"}' % name.encode()
        await rest.store.create(f"/loadbalance/brokers/{name}", report, make_parents=True)
    assert await rest.get(brokers) == await rest.get(f"{brokers}/c") == ["a:8080", "b:8080"]
    assert await rest.status("GET", f"{brokers}/mars") == 404
    assert await rest.status("GET", f"{brokers}/leaderBroker") == 404
    leader = encode_leader(LocalBroker(id="a:8080", broker_url="pulsar://a", web_url="http://a:8080"))
    await rest.store.create("/loadbalance/leader", leader)
    found = await rest.get(f"{brokers}/leaderBroker")
    assert found == {"brokerId": "a:8080", "serviceUrl": "http://a:8080"}
    bundle = even(NamespaceName("public", "default"), 4).all()[0]
    rest.ownership.bundles = [bundle]
    owned = await rest.get(f"{brokers}/c/broker:8080/ownedNamespaces")
    assert owned == {str(bundle): {"broker_assignment": "shared", "is_controlled": False, "is_active": True}}
    there = await rest.sent_to("GET", f"{brokers}/c/b:8080/ownedNamespaces")
    assert there == f"http://b:8080{brokers}/c/b:8080/ownedNamespaces"
    assert await rest.status("GET", f"{brokers}/c/x:1/ownedNamespaces") == 404
    assert (await rest.ask("GET", f"{brokers}/version")).text[0].isdigit()

    await rest.store.create("/ledgers/available/readonly", make_parents=True)
    await rest.store.create("/ledgers/available/b1:3181")
    assert await rest.get("/admin/v2/bookies/all") == {"bookies": [{"bookieId": "b1:3181"}]}
    await rest.store.create("/ledgers/cookies/b2:3181", make_parents=True)
    assert await rest.get("/admin/v2/bookies/all") == {"bookies": [{"bookieId": "b2:3181"}]}


async def test_where_there_is_one_broker_it_leads() -> None:
    async with on_cluster(broker_id="") as rest:
        found = await rest.get("/admin/v2/brokers/leaderBroker")
        assert found == {"brokerId": "broker:8080", "serviceUrl": "http://broker:8080"}


async def test_resources_of_the_original_below_brokers_are_not_taken_for_clusters(rest: ClusterRest) -> None:
    why = await rest.refused("GET", "/admin/v2/brokers/configuration", 501)
    assert "of a running broker cannot be changed" in why
    assert await rest.status("GET", "/admin/v2/brokers/backlog-quota-check") == 204
    assert rest.administration.done == ["check_quotas"]
    await rest.refused("GET", "/admin/v2/brokers/mars", 404)
