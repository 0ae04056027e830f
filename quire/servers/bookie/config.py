"""Configuration of `quire bookie`: a bk_server.conf, the original's or ours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from bookie.config import BookieConfig, check_folders
from quire.servers.bookie.auth_keys import BookieAuthKeys, BookieClientAuthKeys
from quire.servers.bookie.host_name import BookieNameKeys
from quire.servers.bookie.layout_keys import LayoutKeys
from quire.servers.bookie.metadata import ClusterMetadataKeys
from quire.servers.bookie.metrics_keys import MetricsKeys
from quire.servers.bookie.tls_keys import BookieTlsKeys
from quire.servers.keys import AddressKeys, HttpKeys
from quire.service.config import conf_key
from quire.service.log_config import LogKeys
from quire.service.process_conf import Change, Process
from quire.service.properties import Grammar
from quire.service.unsupported import BOOKIE_RULES


@dataclass(frozen=True, slots=True, kw_only=True)
class BookieProcessKeys(BookieNameKeys):
    """Keys of the process around a bookie."""

    allow_ephemeral_ports: bool = conf_key(
        "allowEphemeralPorts", False, doc="true: bookiePort=0 takes a free port, a new one at each start. For tests."
    )
    permitted_users: tuple[str, ...] = conf_key(
        "permittedStartupUsers", (), doc="Users of the machine that may start the bookie, comma-separated. Empty: all."
    )
    auto_recovery: bool = conf_key(
        "autoRecoveryDaemonEnabled",
        False,
        doc="true: auto recovery also runs in this process, with its own keys in this file (docs/operating.md).",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BookieServerConfig:
    """A bookie's keys, and those of the process around it. Raises ValueError if they contradict each other."""

    bookie: BookieConfig
    address: AddressKeys
    process: BookieProcessKeys
    metadata: ClusterMetadataKeys
    layouts: LayoutKeys
    http: HttpKeys
    metrics: MetricsKeys
    tls: BookieTlsKeys
    auth: BookieAuthKeys
    client_auth: BookieClientAuthKeys
    log: LogKeys

    def __post_init__(self) -> None:
        self.bookie.check_pressure()
        self.bookie.check_journal()
        if self.metrics.has_own_port and self.metrics.own_port == 0 and not self.process.allow_ephemeral_ports:
            raise ValueError("prometheusStatsHttpPort=0: a free port needs allowEphemeralPorts=true")
        self.tls.server()
        self.http.tls()
        self.bookie.check_compaction()
        self.bookie.check_entry_logs(self.bookie.transactional)
        if self.auth.by_certificate and not (self.tls.enabled and self.tls.require_certificate):
            raise ValueError(
                f"bookieAuthProviderFactoryClass={self.auth.factory} needs tlsProviderFactoryClass and "
                "tlsClientAuthentication=true: the role is in the client's certificate"
            )
        check_folders(self.bookie)
        if self.bookie.port == 0 and not self.process.allow_ephemeral_ports:
            raise ValueError("bookiePort=0: a free port needs allowEphemeralPorts=true")

    @property
    def id(self) -> str:
        """The bookie's name in the cluster."""
        return self.bookie.id


_HEAD: Final = """Configuration of `quire bookie`: every key with its default.
Names are BookKeeper's; a bk_server.conf written for its bookies is read unchanged. The end of this file has the effect
of all other keys. A name that no version of it has is an error. The first value of a key wins; of a list, all
count."""

BOOKIE: Final = Process(
    "bookie",
    BookieServerConfig,
    Grammar.COMMONS,
    BOOKIE_RULES,
    head=_HEAD,
    changes={
        "advertisedAddress": Change(
            doc="Host that clients connect to, and part of the bookie's name unless bookieId is given. Empty: "
            "the address of listeningInterface, else of this host's name.",
        ),
    },
)
