"""Every process that reads a configuration, and the files in conf/ that are made of what they may be told."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from quire.servers.autorecovery.config import AUTORECOVERY
from quire.servers.bookie.config import BOOKIE
from quire.servers.broker.config import BROKER
from quire.servers.cluster_config import SHELL
from quire.servers.standalone.config import STANDALONE
from quire.service.process_conf import Process

PROCESSES: Final[tuple[Process[Any], ...]] = (STANDALONE, BROKER, BOOKIE, AUTORECOVERY, SHELL)

FILES: Final[Mapping[str, Process[Any]]] = MappingProxyType(
    {"standalone.conf": STANDALONE, "broker.conf": BROKER, "bk_server.conf": BOOKIE}
)
"""By the name in conf/."""
