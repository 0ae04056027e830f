"""Requests to other brokers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import trio

from broker.ownership.bundles import even
from broker.ownership.own_credentials import OwnCredentials
from broker.ownership.peers import Peers, topic_in
from quire.client.authentication import token, token_file
from quire.wire.pulsar.names import NamespaceName
from tests.unit.broker.ownership.cluster import NAMESPACE, OPTIONS, Cluster
from tests.unit.managed_ledger.fake_ledgers import InlineOffload

OFFLOAD: Any = InlineOffload()
BUNDLE = even(NAMESPACE, 4).all()[2]


async def test_a_broker_answers_or_refuses_or_hangs(cluster: Cluster) -> None:
    peers = Peers(cluster.network, OPTIONS)
    url = cluster.add("a").me.broker_url
    assert await peers.answers(url)
    cluster.network.refuses.add(url)
    assert await peers.answers(url), "what it said a moment ago is believed"
    await trio.sleep(OPTIONS.probe_good_s)
    assert not await peers.answers(url)
    cluster.network.refuses.clear()
    assert not await peers.answers(url), "what it did a moment ago is believed too"
    await trio.sleep(OPTIONS.probe_again_s)
    assert await peers.answers(url)
    cluster.network.hangs.add(url)
    await trio.sleep(OPTIONS.probe_good_s)
    before = trio.current_time()
    assert not await peers.answers(url)
    assert trio.current_time() - before < OPTIONS.probe_timeout_s + 0.1
    for nonsense in ("", "pulsar://", "pulsar://a", "pulsar://a:x", "pulsar://b:6650"):
        assert not await peers.answers(nonsense)


async def test_many_who_ask_at_once_cost_one_connection(cluster: Cluster) -> None:
    peers = Peers(cluster.network, OPTIONS)
    url = cluster.add("a").me.broker_url
    async with trio.open_nursery() as nursery:
        for _ in range(100):
            nursery.start_soon(peers.answers, url)
    assert cluster.network.connections == 1


async def test_a_bundle_is_offered_and_taken_or_not(cluster: Cluster) -> None:
    peers = Peers(cluster.network, OPTIONS)
    a, b = await cluster.start_many("a", "b")
    assert await peers.offer(b.me.broker_url, BUNDLE) == b.me.broker_url
    assert b.ownership.owned() == [BUNDLE]
    assert await peers.offer(a.me.broker_url, BUNDLE) == b.me.broker_url, "another has it"
    gone = even(NamespaceName("public", "none"), 1).all()[0]
    assert await peers.offer(b.me.broker_url, gone) is None


async def test_requests_to_another_broker_s_rest_are_those_of_the_original(cluster: Cluster) -> None:
    peers = Peers(cluster.network, OPTIONS)
    host = cluster.add("a")
    assert await peers.unload(host.me, BUNDLE, "b:8080")
    assert await peers.split(host.me, BUNDLE, "range_equally_divide")
    path = b"PUT /admin/v2/namespaces/public/default/0x80000000_0xc0000000"
    assert [request.split(b" HTTP/1.1\r\nHost: a:8080\r\n")[0] for request in host.requests] == [
        path + b"/unload?destinationBroker=b%3A8080",
        path + b"/split?unload=false&splitAlgorithmName=range_equally_divide",
    ]
    cluster.network.refuses.add(host.me.web_url)
    assert not await peers.unload(host.me, BUNDLE, "b:8080")


def test_a_name_is_found_for_every_bundle_however_small() -> None:
    for count in (1, 16, 2000):
        for bundle in even(NAMESPACE, count).all()[:: max(1, count // 5)]:
            assert bundle.has(topic_in(bundle))


async def test_requests_to_other_brokers_have_this_broker_s_credentials(cluster: Cluster) -> None:
    own = OwnCredentials(token("broker-token"), OFFLOAD)
    network = cluster.network
    a, b = await cluster.start_many("a", "b")
    network.wanted = ("token", b"broker-token")
    peers = Peers(network, OPTIONS, own=own)
    assert await peers.answers(b.me.broker_url)
    assert await peers.offer(b.me.broker_url, BUNDLE) == b.me.broker_url
    assert await peers.unload(a.me, BUNDLE, "b:8080")
    [request] = a.requests
    assert b"\r\nAuthorization: Bearer broker-token\r\n" in request
    assert b"\r\nX-Pulsar-Auth-Method-Name: token\r\n" in request
    assert await Peers(network, OPTIONS).offer(b.me.broker_url, BUNDLE) is None, "without credentials it is refused"


async def test_credentials_that_cannot_be_read_are_no_answer(cluster: Cluster, tmp_path: Path) -> None:
    own = OwnCredentials(token_file(tmp_path / "gone"), OFFLOAD)
    peers = Peers(cluster.network, OPTIONS, own=own)
    host = cluster.add("a")
    assert not await peers.answers(host.me.broker_url)
    assert not await peers.unload(host.me, BUNDLE, "b:8080")
    assert host.requests == []
