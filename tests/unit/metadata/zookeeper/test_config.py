from __future__ import annotations

import pytest

from quire.metadata.errors import InvalidConnectStringError
from quire.metadata.zookeeper.config import ConnectString, Tls, ZooKeeperConfig, parse_connect_string
from tests.support.refusals import refuses

ONE = (("h1", 2181),)
TWO = (("h1", 2181), ("h2", 2182))


@pytest.mark.parametrize(
    ("text", "servers", "chroot", "ledgers_root", "layout"),
    [
        ("h1", ONE, "/", "/ledgers", None),
        ("h1:2181,h2:2182", TWO, "/", "/ledgers", None),
        ("h1,h2:2182/a/b/", TWO, "/a/b", "/ledgers", None),
        ("zk:h1:2181,h2:2182/pulsar", TWO, "/pulsar", "/ledgers", None),
        ("zk://h1/pulsar", ONE, "/pulsar", "/ledgers", None),
        ("zk+hierarchical://h1:2181;h2:2182/ledgers", TWO, "/", "/ledgers", "hierarchical"),
        ("zk+longhierarchical://h1/x/ledgers", ONE, "/", "/x/ledgers", "longhierarchical"),
        ("zk+FLAT://h1/ledgers", ONE, "/", "/ledgers", "flat"),
        ("zk+null://h1/ledgers", ONE, "/", "/ledgers", None),
        (" [::1]:2182,10.0.0.1 ", (("::1", 2182), ("10.0.0.1", 2181)), "/", "/ledgers", None),
    ],
)
def test_every_form_of_a_connect_string_is_understood(text, servers, chroot, ledgers_root, layout):
    found = parse_connect_string(text)
    assert (found.servers, found.chroot, found.ledgers_root, found.layout) == (servers, chroot, ledgers_root, layout)


NO_SERVERS = ["", "/pulsar", "h1:", "h1:x", "h1:0", "h1:70000", "h1,,h2", "h1//a", "h1/a/../b"]


@pytest.mark.parametrize("text", [*NO_SERVERS, "zk+ms://h1/l", "etcd://h1", "zk+flat://h1"])
def test_what_is_no_connect_string_is_refused(text: str) -> None:
    refuses(InvalidConnectStringError, lambda: parse_connect_string(text))


def test_settings_that_contradict_each_other_are_refused() -> None:
    refuses(InvalidConnectStringError, lambda: ZooKeeperConfig(servers=()), "at least one")
    refuses(InvalidConnectStringError, lambda: ZooKeeperConfig(servers=ONE, secure=True), "zkEnableSecurity")
    with pytest.raises(InvalidConnectStringError, match="needs its key"):
        ZooKeeperConfig(servers=ONE, tls=Tls(certificate_file="a"))


def test_secrets_are_not_shown() -> None:
    config = ZooKeeperConfig(servers=ONE, auth=(("digest", "a:secret"),), tls=Tls(key_password="secret"))
    assert "secret" not in repr(config)


def test_a_connect_string_is_a_value() -> None:
    assert parse_connect_string("h1") == ConnectString(servers=ONE)
