"""Configuration of `quire autorecovery`: of a bk_server.conf, the keys of the metadata, of its name, and of auto
recovery."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import Final

from autorecovery.config import AutoRecoveryConfig
from bookie.config import BookieIdentity
from quire.servers.bookie.auth_keys import BookieClientAuthKeys
from quire.servers.bookie.config import BOOKIE
from quire.servers.bookie.metadata import ClusterMetadataKeys
from quire.servers.bookie.tls_keys import BookieTlsKeys
from quire.servers.keys import AddressKeys, HttpKeys
from quire.service.log_config import LogKeys
from quire.service.process_conf import Change, Process
from quire.service.properties import Grammar
from quire.service.unsupported import BOOKIE_RULES, RECOVERY_RULES


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryServerConfig:
    """Auto recovery's keys, and those of the process around it. Raises ValueError if they contradict each other."""

    metadata: ClusterMetadataKeys
    bookie: BookieIdentity
    address: AddressKeys
    http: HttpKeys
    log: LogKeys
    recovery: AutoRecoveryConfig
    tls: BookieTlsKeys
    auth: BookieClientAuthKeys

    def __post_init__(self) -> None:
        self.tls.client()
        self.http.tls()

    @property
    def name(self) -> str:
        """The name in votes and locks: the bookie of this configuration, or this host."""
        host = self.address.advertised_address or socket.gethostname()
        return self.bookie.bookie_id or f"{host}:{self.bookie.port}"


AUTORECOVERY: Final = Process(
    "autorecovery",
    RecoveryServerConfig,
    Grammar.COMMONS,
    RECOVERY_RULES,
    changes={"advertisedAddress": Change(doc=BOOKIE.keys()["advertisedAddress"].doc)},
    others=frozenset((*BOOKIE.keys(), *BOOKIE_RULES.aliases)),
)
"""It shares the file with the bookie: what only that one obeys may stand there, and its values are not looked at."""
