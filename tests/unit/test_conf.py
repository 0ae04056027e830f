"""conf/ documents every field of every configuration, with its true default, and every key has an effect."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bookie.config import BookieConfig
from cursors.config import CursorConfig
from managed_ledger.config import ManagedLedgerConfig
from quire.cli.broker_conf import load_broker_config
from quire.cli.broker_config import BrokerConfig
from quire.cli.standalone_conf import load_standalone_config
from quire.cli.standalone_conf import render_conf as render_standalone_conf
from quire.cli.standalone_config import StandaloneConfig
from quire.service.config import keys_of, render_value
from quire.service.original_keys import is_original_key

ROOT = Path(__file__).resolve().parents[2]
CONFIGURATIONS: dict[str, type] = {"standalone.conf": StandaloneConfig, "broker.conf": BrokerConfig}
READERS = {
    "standalone.conf": ("quire/cli/standalone*.py", "quire/cli/broker_keys.py"),
    "broker.conf": ("quire/cli/broker*.py", "quire/cli/zookeeper_keys.py"),
}
PARTS: dict[str, tuple[type, ...]] = {
    "standalone.conf": (ManagedLedgerConfig, CursorConfig, BookieConfig),
    "broker.conf": (ManagedLedgerConfig, CursorConfig),
}
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


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_every_key_has_an_effect(name: str) -> None:
    code = "".join(path.read_text() for glob in READERS[name] for path in sorted(ROOT.glob(glob)))
    used = set(re.findall(r"\b(?:config|self)\.(\w+)", code))
    taken = {
        key
        for part in PARTS[name]
        if re.search(rf"narrow\(\s*config,\s*{part.__name__}\b", code)
        for key in keys_of(part)
    }
    keys = keys_of(CONFIGURATIONS[name]).values()
    assert [key.name for key in keys if key.field_name not in used and key.name not in taken] == []


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_every_key_of_a_part_is_in_the_file_or_is_decided_by_the_shape(name: str) -> None:
    known = {*keys_of(CONFIGURATIONS[name]), *DECIDED[name]}
    assert [key for part in PARTS[name] for key in keys_of(part) if key not in known] == []


def test_every_file_in_conf_is_held_to_a_configuration() -> None:
    # tests/unit/bookie/test_server_config.py holds the bookie's.
    assert sorted(path.name for path in (ROOT / "conf").iterdir()) == sorted({*CONFIGURATIONS, "bk_server.conf"})
