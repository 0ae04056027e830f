"""conf/ documents every field of every configuration, with its true default, and every key has an effect."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pytest

from bookie.config import BookieConfig
from cursors.config import CursorConfig
from managed_ledger.config import ManagedLedgerConfig
from quire.servers.broker import parts as broker_parts
from quire.servers.broker.conf import load_broker_config
from quire.servers.broker.config import BrokerConfig
from quire.servers.broker.keys import broker_options
from quire.servers.broker.process import located
from quire.servers.standalone import process as standalone
from quire.servers.standalone.conf import load_standalone_config
from quire.servers.standalone.conf import render_conf as render_standalone_conf
from quire.servers.standalone.config import StandaloneConfig
from quire.servers.standalone.data_directory import DataDirectory
from quire.service.config import Key, keys_of, render_value
from quire.service.errors import ConfigError
from quire.service.original_keys import is_original_key

ROOT = Path(__file__).resolve().parents[2]
CONFIGURATIONS: dict[str, type] = {"standalone.conf": StandaloneConfig, "broker.conf": BrokerConfig}
READERS = {
    "standalone.conf": ("quire/servers/standalone/*.py", "quire/servers/broker/keys.py"),
    "broker.conf": ("quire/servers/broker/*.py", "quire/servers/zookeeper/keys.py"),
}
PARTS: dict[str, tuple[type, ...]] = {
    "standalone.conf": (ManagedLedgerConfig, CursorConfig, BookieConfig),
    "broker.conf": (ManagedLedgerConfig, CursorConfig),
}
TOGETHER: dict[str, dict[str, object]] = {
    "standalone.conf": {},
    "broker.conf": {"ensemble_size": 3, "write_quorum": 3, "zk_auth": "digest:a:b", "zk_tls": True},
}
"""Values with which any single key can be changed."""
TEXTS: dict[str, object] = {
    "metadataStoreUrl": "zk:other:2181",
    "configurationMetadataStoreUrl": "zk:other:2181",
    "bookkeeperMetadataServiceUri": "zk+hierarchical://localhost:2181/other",
    "quireZooKeeperAuth": "digest:c:d",
    "bindAddress": "10.0.0.9",
}
OF_THE_PROCESS = {
    "standalone.conf": ("brokerServicePort", "webServicePort", "brokerMaxConnections", "brokerShutdownTimeoutMs"),
    "broker.conf": (
        "brokerServicePort",
        "webServicePort",
        "brokerMaxConnections",
        "brokerShutdownTimeoutMs",
        "configurationMetadataStoreUrl",
        "quireZooKeeperTlsCertificateFile",
        "quireZooKeeperTlsKeyFile",
        "forceDeleteNamespaceAllowed",
        "forceDeleteTenantAllowed",
    ),
}
"""Keys that no room gets: of ports, and of what is refused elsewhere (tests/unit/cli, tests/unit/broker/admin)."""
DECIDED = {
    "standalone.conf": (
        "managedLedgerDefaultEnsembleSize",
        "managedLedgerDefaultWriteQuorum",
        "managedLedgerDefaultAckQuorum",
        "bookieId",
        "bookiePort",
        "journalDirectories",
        "ledgerDirectories",
        "maxBatchReadSize",
    ),
    "broker.conf": (),
}
"""Keys of parts that one process with one bookie leaves no choice about."""


def pairs(name: str) -> list[tuple[str, str, str]]:
    """(key, value, comment above it), in the order of the file."""
    found = []
    comment = ""
    text = (ROOT / "conf" / name).read_text().partition("\n# Keys of the original that have no effect")[0]
    for line in text.splitlines():
        if line.startswith("# "):
            comment += line[2:] + " "
        elif "=" in line:
            key, _, value = line.partition("=")
            found.append((key, value, comment.strip()))
            comment = ""
        else:
            comment = ""
    return found


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_the_file_has_every_key_once_with_its_default_and_its_text(name: str) -> None:
    keys = keys_of(CONFIGURATIONS[name])
    assert pairs(name) == [(key.name, render_value(key.default), key.doc) for key in keys.values()]
    assert all(key.doc for key in keys.values())


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_the_file_reads_as_the_defaults(name: str) -> None:
    path, cls = ROOT / "conf" / name, CONFIGURATIONS[name]
    found = load_broker_config(path) if name == "broker.conf" else load_standalone_config(path, {})
    assert found == cls()


def test_the_standalone_file_is_what_the_code_says() -> None:
    assert (ROOT / "conf/standalone.conf").read_text() == render_standalone_conf()


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_every_key_has_a_name_that_operators_know_or_begins_with_ours(name: str) -> None:
    keys = keys_of(CONFIGURATIONS[name])
    assert [key for key in keys if not is_original_key(key) and not key.startswith("quire")] == []


def other_values(key: Key, now: Any) -> list[object]:
    """Values that are not the one of `now`, of which at least one goes with the other keys."""
    if key.name in TEXTS:
        return [TEXTS[key.name]]
    if key.bounds.choices:
        return [each for each in key.bounds.choices if each != now]
    if isinstance(now, bool):
        return [not now]
    if isinstance(now, float):
        return [now / 2]
    if isinstance(now, int):
        low, high = key.bounds.minimum, key.bounds.maximum
        near = [now + 1, now - 1]
        return [each for each in near if (low is None or each >= low) and (high is None or each <= high)]
    return ["other"]


def parts_of(config: StandaloneConfig | BrokerConfig) -> tuple[object, ...]:
    """Return the configuration objects that the rooms are created with."""
    if isinstance(config, StandaloneConfig):
        directory = DataDirectory(root="/d", lock=cast(Any, None))
        return (
            broker_options(config),
            config.advertised_host,
            standalone.ledger_config(config),
            standalone.cursor_config(config),
            standalone.bookie_config(config, directory),
        )
    return (
        broker_options(config),
        broker_parts.zookeeper_config(config),
        broker_parts.ledger_client_config(config),
        broker_parts.watcher_config(config),
        broker_parts.ownership_options(config),
        broker_parts.ledger_config(config),
        broker_parts.cursor_config(config),
        located(config).advertised_host,
    )


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_a_key_that_is_changed_changes_what_a_part_is_made_with(name: str) -> None:
    cls = CONFIGURATIONS[name]
    base = {"cluster_name": "c", "web_port": 8080, **TOGETHER[name]}
    default = parts_of(cls(**base))
    without = []
    for key in keys_of(cls).values():
        if key.name in OF_THE_PROCESS[name]:
            continue
        changed = []
        for value in other_values(key, base.get(key.field_name, key.default)):
            with suppress(ValueError, ConfigError):
                changed.append(parts_of(cls(**{**base, key.field_name: value})))
        if not changed or all(each == default for each in changed):
            without.append(key.name)
    assert without == []


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_keys_of_the_process_itself_are_read_where_it_is_put_together(name: str) -> None:
    code = "".join(path.read_text() for glob in READERS[name] for path in sorted(ROOT.glob(glob)))
    keys = keys_of(CONFIGURATIONS[name])
    assert [each for each in OF_THE_PROCESS[name] if f"config.{keys[each].field_name}" not in code] == []


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_every_key_of_a_part_is_in_the_file_or_is_decided_by_the_shape(name: str) -> None:
    known = {*keys_of(CONFIGURATIONS[name]), *DECIDED[name]}
    assert [key for part in PARTS[name] for key in keys_of(part) if key not in known] == []


def test_every_file_in_conf_is_held_to_a_configuration() -> None:
    # tests/unit/servers/bookie/test_config.py holds the bookie's.
    assert sorted(path.name for path in (ROOT / "conf").iterdir()) == sorted({*CONFIGURATIONS, "bk_server.conf"})
