"""Each key is declared once, and has an effect; conf/ is made from the declarations."""

from __future__ import annotations

import ast
import re
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from quire.servers.broker.config import BROKER, BrokerConfig
from quire.servers.broker.listening import ListenConfig
from quire.servers.broker.process import located
from quire.servers.configurations import FILES, PERMISSIONS, PROCESSES, TABLE, made
from quire.service.config import Key, conf_key, keys_of
from quire.service.errors import ConfigError
from quire.service.original_keys import is_original_key
from quire.service.process_conf import Process, declared_twice

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("autorecovery", "bookie", "broker", "cursors", "managed_ledger", "quire")
TOGETHER: dict[str, object] = {
    "clusterName": "c",
    "managedLedgerDefaultEnsembleSize": 3,
    "managedLedgerDefaultWriteQuorum": 3,
    "quireZooKeeperAuth": "digest:a:b",
    "quireZooKeeperTls": True,
}
"""Values of a broker with which any single key can be changed."""
TEXTS: dict[str, object] = {
    "metadataStoreUrl": "zk:other:2181",
    "configurationMetadataStoreUrl": "zk:other:2181",
    "bookkeeperMetadataServiceUri": "zk+hierarchical://localhost:2181/other",
    "quireZooKeeperAuth": "digest:c:d",
}
REFUSED_ALONE = ("configurationMetadataStoreUrl", "quireZooKeeperTlsCertificateFile", "quireZooKeeperTlsKeyFile")


OF_BOTH = frozenset(
    ("tlsHostnameVerificationEnabled", "tlsKeyStore", "tlsKeyStoreType", "tlsTrustStore", "tlsTrustStoreType")
)
"""Names that both originals have in their files, of brokers and of bookies, each for itself."""


def processes() -> list[Any]:
    return [pytest.param(process, id=process.name) for process in PROCESSES]


def declarations() -> Counter[str]:
    """Return the number of calls of `conf_key` in the product's code, by name."""
    found: Counter[str] = Counter()
    for room in ROOMS:
        for path in (ROOT / room).rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            if "conf_key(" in text:
                found.update(name_of(node) for node in ast.walk(ast.parse(text)) if is_declaration(node))
    return found


def is_declaration(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "conf_key"


def name_of(node: ast.AST) -> str:
    assert isinstance(node, ast.Call)
    name = node.args[0]
    assert isinstance(name, ast.Constant), f"line {node.lineno}: the name of a key is written out"
    return str(name.value)


def test_every_key_is_declared_once_and_belongs_to_a_process() -> None:
    found = declarations()
    assert {name: count for name, count in found.items() if count > 1} == dict.fromkeys(OF_BOTH, 2)
    assert set(found) == {name for process in PROCESSES for name in (*process.keys(), *process.fixed)}


@dataclass(frozen=True, kw_only=True)
class Planted:
    copy: int = conf_key("brokerServicePort", 1, doc="A copy.")


@pytest.mark.parametrize("process", processes())
def test_no_two_classes_of_a_process_have_a_key(process: Process[Any]) -> None:
    assert declared_twice(process.parts().values()) == []
    if ListenConfig in process.parts().values():
        assert declared_twice([*process.parts().values(), Planted]) == ["brokerServicePort: ListenConfig, Planted"]


@pytest.mark.parametrize("process", processes())
def test_what_a_process_has_otherwise_is_of_a_key_that_it_has(process: Process[Any]) -> None:
    declared = {name for cls in process.parts().values() for name in keys_of(cls)}
    assert set(process.changes) <= set(process.keys())
    assert set(process.fixed) <= declared
    assert not process.others & set(process.fixed) or process.quiet


BY_HAND = ("bkenv.sh", "logging.toml")
"""Files in conf that declare no keys of a process: the environment and the logging of a bookie in the background."""


@pytest.mark.parametrize("process", processes())
def test_every_key_has_help_and_a_default_that_keeps_to_its_bounds(process: Process[Any]) -> None:
    for key in process.keys().values():
        assert key.doc, key.name
        if key.bounds.choices:
            defaults = key.default if isinstance(key.default, tuple) else (key.default,)
            assert set(defaults) <= set(key.bounds.choices), key.name
        if key.bounds.minimum is not None:
            # (None: there is no such port.)
            least = key.bounds.minimum if key.default is None else key.default
            assert key.bounds.minimum <= least <= (key.bounds.maximum or least), key.name


@pytest.mark.parametrize("process", processes())
def test_every_key_has_a_name_that_operators_know_or_begins_with_ours(process: Process[Any]) -> None:
    keys = process.keys()
    assert [key for key in keys if not is_original_key(key) and not key.startswith("quire")] == []


@pytest.mark.parametrize("name", FILES)
def test_the_file_in_conf_is_what_the_declarations_say_and_reads_as_the_defaults(name: str) -> None:
    process = FILES[name]
    assert (ROOT / "conf" / name).read_text() == process.render(), "stale: run scripts/configuration"
    assert process.load(ROOT / "conf" / name) == process.build()


def test_every_file_in_conf_and_the_table_of_the_documentation_are_made() -> None:
    found = sorted(path.name for path in (ROOT / "conf").iterdir() if path.is_file())
    assert found == sorted([*FILES, *BY_HAND])
    for page in (TABLE, PERMISSIONS):
        assert (ROOT / page).read_text() == made()[page], "stale: run scripts/configuration"
    assert set(made()) == {TABLE, PERMISSIONS, *(f"conf/{name}" for name in FILES)}


@pytest.mark.parametrize("process", processes())
def test_every_field_with_a_key_is_read_in_its_room_or_where_the_process_is_put_together(process: Process[Any]) -> None:
    unread = []
    for cls in process.parts().values():
        rooms = {each.__module__.partition(".")[0] for each in cls.__mro__ if each is not object} - {"quire"}
        folders = [*(ROOT / room for room in rooms), ROOT / "quire/servers"]
        code = "".join(path.read_text() for folder in folders for path in sorted(folder.rglob("*.py")))
        unread += [key.name for key in keys_of(cls).values() if not re.search(rf"\.{key.field_name}\b", code)]
    assert unread == []


def other_values(key: Key, now: Any) -> list[object]:
    """Return values other than `now`; at least one of them is valid together with the other keys."""
    if key.name in TEXTS:
        return [TEXTS[key.name]]
    if key.bounds.choices and isinstance(now, tuple):
        return [(each,) for each in key.bounds.choices]
    if key.bounds.choices:
        return [each for each in key.bounds.choices if each != now]
    if isinstance(now, bool):
        return [not now]
    if isinstance(now, float):
        return [now / 2]
    if isinstance(now, int):
        low, high = key.bounds.minimum, key.bounds.maximum
        return [each for each in (now + 1, now - 1) if (low is None or each >= low) and (high is None or each <= high)]
    return ["other"]


def translated(config: BrokerConfig) -> tuple[object, ...]:
    """Return the objects made of keys that no room obeys as they stand."""
    return config.metadata.stores(), config.ledger_client.client, config.ledger_client.watcher


def test_a_key_of_the_bookies_client_or_of_the_metadata_changes_what_those_are_made_with() -> None:
    default = translated(BROKER.build(TOGETHER))
    without = []
    for part in ("metadata", "ledger_client"):
        for key in keys_of(BROKER.parts()[part]).values():
            changed = []
            for value in other_values(key, TOGETHER.get(key.name, key.default)):
                with suppress(ConfigError):
                    changed.append(translated(BROKER.build({**TOGETHER, key.name: value})))
            if key.name not in REFUSED_ALONE and (not changed or all(each == default for each in changed)):
                without.append(key.name)
    assert without == []


def test_what_one_room_declares_and_another_obeys_too_reaches_both() -> None:
    config = located(BROKER.build({**TOGETHER, "advertisedAddress": "h"}))
    assert (config.listen.advertised_host, config.broker.cluster_name) == ("h", "c")
    assert config.broker.output_bytes_bound == 256 << 20
    assert BROKER.build({"managedLedgerMaxReadsInFlightSizeInMB": 1}).broker.output_bytes_bound == 1 << 20
