"""Keys whose values change while a process runs (broker.dynamic.conf)."""

from __future__ import annotations

import pytest

from broker.dynamic.conf import DynamicConf
from quire.servers.broker.config import BROKER, BrokerConfig


def conf(**values: object) -> DynamicConf[BrokerConfig]:
    return DynamicConf(BROKER, BROKER.build({"clusterName": "c", **values}))


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("maxTopicsPerNamespace", "5", ""),
        ("maxTopicsPerNamespace", "", ""),
        ("maxTopicsPerNamespace", "5.5", "not a whole number"),
        ("maxTopicsPerNamespace", "-1", "below 0"),
        ("brokerDeleteInactiveTopicsEnabled", "yes", "neither true nor false"),
        ("subscriptionTypesEnabled", "Shared,Failover", ""),
        ("subscriptionTypesEnabled", "Shared,Other", "'Other' is none of"),
        ("clusterName", "d", "cannot be changed while a broker runs"),
        ("entryFilterNames", "a", "cannot be changed while a broker runs"),
        ("numIOThreads", "5", "not obeyed by this server"),
        ("maxTopicPerNamespace", "5", "did you mean maxTopicsPerNamespace"),
    ],
)
def test_only_values_of_dynamic_keys_that_fit_can_be_set(name: str, text: str, why: str) -> None:
    found = conf().refusal(name, text)
    assert (why in found) if why else not found, found


def test_the_values_of_the_file_hold_where_nothing_is_stored() -> None:
    live = conf(maxTopicsPerNamespace=9)
    options = live.config.broker
    assert live.obey({"maxTopicsPerNamespace": "5", "defaultNumPartitions": "2"}).changed == {
        "maxTopicsPerNamespace",
        "defaultNumPartitions",
    }
    assert (options.topics_per_namespace_max, options.partitions_default) == (5, 2)
    assert live.obey({"maxTopicsPerNamespace": "5"}).changed == {"defaultNumPartitions"}
    assert live.obey({"maxTopicsPerNamespace": "9"}).changed == {"maxTopicsPerNamespace"}
    assert live.obey({}).changed == frozenset()
    assert (options.topics_per_namespace_max, options.partitions_default) == (9, 1)


def test_units_are_those_of_the_file() -> None:
    live = conf()
    live.obey({"loadBalancerSheddingIntervalMinutes": "2", "maxMessagePublishBufferSizeInMB": "3"})
    assert live.config.ownership.shed_interval_s == 120
    assert live.config.broker.publish_buffer_bytes_max == 3 << 20
    assert live.values()["loadBalancerSheddingIntervalMinutes"] == "2"


def test_the_configuration_that_was_read_stays_as_it_is() -> None:
    read = BROKER.build({"clusterName": "c"})
    first, second = DynamicConf(BROKER, read), DynamicConf(BROKER, read)
    first.obey({"maxTopicsPerNamespace": "5"})
    assert (read.broker.topics_per_namespace_max, second.config.broker.topics_per_namespace_max) == (0, 0)
    assert read.broker == BROKER.build({"clusterName": "c"}).broker


def test_secrets_are_not_among_the_values_that_are_shown() -> None:
    live = conf(brokerClientAuthenticationParameters="token:abc", quireZooKeeperAuth="digest:user:abc")
    assert live.values()["brokerClientAuthenticationParameters"] == "***"
    assert live.values()["quireZooKeeperAuth"] == "***"
    assert live.values()["clusterName"] == "c"
