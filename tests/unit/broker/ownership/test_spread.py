"""The brokers that namespaces of an anti-affinity group are spread over."""

from __future__ import annotations

import pytest
import trio

from broker.errors import ServiceNotReadyError
from broker.ownership.affinity.spread import Spread
from broker.ownership.affinity.store import GROUP, FailureDomains, domains_path
from broker.ownership.bundles import even
from broker.ownership.lookup import Connect, Redirect
from broker.ownership.peers import topic_in
from quire.wire.pulsar.names import NamespaceName, TopicName
from tests.support.refusals import raises
from tests.support.waiting import until
from tests.unit.broker.ownership.cluster import OPTIONS, Cluster, Host

GROUPS = {"t/a": "g", "t/b": "G", "t/c": "g", "t/d": "other", "t/e": ""}
DOMAINS = {"1": "east", "2": "east", "3": "west", "4": "west"}


@pytest.mark.parametrize(
    ("bundle", "placed", "domains", "allowed"),
    [
        # No group, and a group of which nothing is placed: every broker.
        ("e/x", "1=a/x 2= 3=", "", "1 2 3"),
        ("a/x", "1= 2= 3=", "", "1 2 3"),
        # Those with the fewest namespaces of the group; others do not count.
        ("a/x", "1=b/x 2= 3=d/x", "", "2 3"),
        ("a/x", "1=b/x,c/x 2=b/y 3=c/y,d/x,d/y", "", "2 3"),
        ("a/x", "1=b/x,b/y,b/z 2=b/w,c/w", "", "1"),
        # Its own other bundles count, and it does not count itself.
        ("a/x", "1=a/y 2=", "", "2"),
        ("a/x", "1=a/x 2=b/x", "", "1"),
        ("a/x", "1=a/x 2= 3=b/x", "", "1 2"),
        # Domains go first, then the brokers of one; those in none are one domain.
        ("a/x", "1=b/x 2= 3= 4=", "all", "3 4"),
        ("a/x", "1=b/x 2= 3=c/x 4=", "all", "2 4"),
        ("a/x", "1=b/x,c/x 2= 3=c/y 4=", "all", "4"),
        ("a/x", "1=b/x 2= 5= 6=c/x 3=b/y,c/z", "all", "2 5"),
        ("a/x", "1=b/x 2= 3= 4=", "", "2 3 4"),
    ],
)
def test_the_brokers_that_may_have_a_bundle(bundle: str, placed: str, domains: str, allowed: str) -> None:
    spread = Spread(GROUPS, DOMAINS if domains else None)
    now = {each[0]: {f"t/{name}" for name in each[2:].split(",") if name} for each in placed.split()}
    assert spread.allowed(f"t/{bundle}", now, now) == set(allowed.split())


def test_without_a_group_there_is_no_rule() -> None:
    assert not Spread({"t/e": ""})
    assert Spread(GROUPS)
    assert Spread(GROUPS).allowed("t/a/x", [], {}) == set()


# Over a cluster


async def namespace(host: Host, name: str, group: str) -> TopicName:
    """Make a namespace of one bundle in a group; return a topic of it."""
    made = NamespaceName("public", name)
    await host.ownership.namespaces.create(made, {"bundles": {"numBundles": 1}})
    await host.ownership.namespaces.update_local(made, lambda fields: {**fields, GROUP: group})
    [bundle] = even(made, 1).all()
    return topic_in(bundle)


async def take(hosts: list[Host], topic: TopicName) -> str:
    """Look a topic up until a broker has it; return the broker."""
    answer = await hosts[0].lookup(topic)
    if isinstance(answer, Redirect):
        [chosen] = [each for each in hosts if each.me.broker_url == answer.broker_url]
        answer = await chosen.lookup(topic, authoritative=True)
    assert isinstance(answer, Connect)
    [owner] = [each for each in hosts if each.me.broker_url == answer.broker_url]
    await until(lambda: all(str(topic.namespace_name) in str(each.ownership.brokers.reports) for each in hosts))
    return owner.me.id


async def test_namespaces_of_a_group_are_given_to_different_brokers(cluster: Cluster) -> None:
    hosts = await cluster.start_many("a", "b", "c")
    topics = [await namespace(hosts[0], f"n{number}", "g") for number in range(3)]
    for number in range(6):  # others, which make one broker busier than the group does
        await take(hosts, await namespace(hosts[0], f"other{number}", ""))
    assert len({await take(hosts, each) for each in topics}) == 3


async def test_with_failure_domains_they_are_given_to_different_domains(cluster: Cluster) -> None:
    hosts = await cluster.start_many("a", "b", "c", failure_domains=True)
    domains = FailureDomains(hosts[0].metadata)
    await domains.put(OPTIONS.cluster_name, "east", {"brokers": ["a:8080", "b:8080"]})
    await domains.put(OPTIONS.cluster_name, "west", {"brokers": ["c:8080"]})
    owners = [await take(hosts, await namespace(hosts[0], f"n{number}", "g")) for number in range(2)]
    assert len({"west" if each == "c:8080" else "east" for each in owners}) == 2


async def test_domains_that_cannot_be_read_choose_no_broker(cluster: Cluster) -> None:
    [a] = await cluster.start_many("a", failure_domains=True)
    topic = await namespace(a, "n", "g")
    await a.metadata.create(f"{domains_path(OPTIONS.cluster_name)}/east", b'{"brokers": 1}', make_parents=True)
    await raises(ServiceNotReadyError, a.lookup(topic), match="failure domain")


async def test_the_leader_parts_namespaces_that_were_put_into_a_group_later_and_then_leaves_them(
    cluster: Cluster,
) -> None:
    hosts = await cluster.start_many("a", "b", shed_interval_s=20.0, load_balancing=False, shed_grace_s=60.0)
    names = ["n0", "n1"]
    for name in names:
        topic = await namespace(hosts[0], name, "")
        await hosts[0].lookup(topic, authoritative=True)
    assert len(hosts[0].ownership.owned()) == 2
    for name in names:
        made = NamespaceName("public", name)
        await hosts[0].ownership.namespaces.update_local(made, lambda fields: {**fields, GROUP: "g"})
    await until(lambda: [len(each.ownership.owned()) for each in hosts] == [1, 1], within=120)
    before = [list(each.ownership.owned()) for each in hosts]
    await trio.sleep(200)
    assert [list(each.ownership.owned()) for each in hosts] == before
