"""quire.servers.broker.config: the original's broker.conf is read unchanged, and each of its settings is
obeyed or refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from quire.servers.broker.config import BROKER
from quire.servers.broker.process import located
from quire.service.errors import ConfigError
from quire.service.original_keys import is_original_key
from quire.service.unsupported import BROKER_RULES

ROOT = Path(__file__).resolve().parents[4]


def test_the_file_in_conf_is_what_the_code_says() -> None:
    assert (ROOT / "conf/broker.conf").read_text() == BROKER.render()
    assert BROKER.load(ROOT / "conf/broker.conf") == BROKER.build()


def test_every_key_is_decided_once_and_is_one_that_operators_know() -> None:
    fields = set(BROKER.keys())
    assert [name for name in fields if not is_original_key(name) and not name.startswith("quire")] == []
    assert fields & set(BROKER_RULES.aliases) == set()
    assert set(BROKER_RULES.aliases.values()) <= fields


def test_a_broker_is_known_by_a_name_that_others_can_reach() -> None:
    assert located(BROKER.build({"clusterName": "c", "advertisedAddress": "b1"})).listen.advertised_host == "b1"
    assert located(BROKER.build({"clusterName": "c", "bindAddress": "10.0.0.7"})).listen.advertised_host == "10.0.0.7"
    assert located(BROKER.build({"clusterName": "c"})).listen.advertised_host != "127.0.0.1"
    assert located(BROKER.build({"clusterName": "c", "webServicePort": 0})).listen.web_port or 0 > 0
    with pytest.raises(ConfigError, match="clusterName"):
        located(BROKER.build())
