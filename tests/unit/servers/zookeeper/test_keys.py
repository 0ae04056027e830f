"""Credentials for ZooKeeper in the configurations of servers and tools."""

from __future__ import annotations

from pathlib import Path

import pytest

from quire.servers.autorecovery.config import AUTORECOVERY
from quire.servers.bookie.config import BOOKIE
from quire.servers.broker.config import BROKER
from quire.servers.cluster_config import SHELL
from quire.service.process_conf import Process

SECRET = "the-secret-itself"


@pytest.mark.parametrize("process", [BROKER, BOOKIE, AUTORECOVERY, SHELL], ids=lambda each: each.name)
def test_passwords_are_in_no_repr(tmp_path: Path, process: Process[object]) -> None:
    conf = tmp_path / "its.conf"
    conf.write_text(f"quireZooKeeperAuth=digest:user:{SECRET}\n" + (f"passwd={SECRET}\n" if process is SHELL else ""))
    config = process.load(conf)
    assert SECRET in str(process.values_of(config))
    assert SECRET not in repr(config)
