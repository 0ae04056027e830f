"""Configuration of `quire broker`: a broker.conf, the original's or ours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from broker.config import BrokerOptions
from broker.console.config import ConsoleOptions
from broker.ownership.config import OwnershipOptions
from broker.security.authentication.config import AuthenticationOptions
from broker.security.authorization.config import AuthorizationOptions
from broker.series.config import MetricsOptions
from broker.tracing.config import TracingOptions
from cursors.config import CursorConfig
from managed_ledger.config import ManagedLedgerConfig
from quire.servers.broker.deletion import DeletionKeys
from quire.servers.broker.ledger_auth_keys import LedgerAuthKeys
from quire.servers.broker.ledger_client import LedgerClientKeys
from quire.servers.broker.ledger_tls_keys import LedgerTlsKeys
from quire.servers.broker.listening import ListenConfig
from quire.servers.broker.metadata import BrokerMetadataKeys
from quire.servers.broker.tiered_storage import TieredStorageKeys
from quire.servers.broker.tls_keys import BrokerClientTlsKeys, ServerTlsKeys
from quire.service.log_config import LogKeys
from quire.service.process_conf import Change, Process
from quire.service.properties import Grammar
from quire.service.unsupported import BROKER_RULES


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """Configuration of the rooms of a broker of a cluster. Raises ValueError if the rooms contradict each other."""

    listen: ListenConfig
    tls: ServerTlsKeys
    client_tls: BrokerClientTlsKeys
    ledger_tls: LedgerTlsKeys
    ledger_auth: LedgerAuthKeys
    broker: BrokerOptions
    authorization: AuthorizationOptions
    logs: ManagedLedgerConfig
    cursors: CursorConfig
    metadata: BrokerMetadataKeys
    ledger_client: LedgerClientKeys
    ownership: OwnershipOptions
    tiered: TieredStorageKeys
    deletion: DeletionKeys
    metrics: MetricsOptions
    tracing: TracingOptions
    console: ConsoleOptions
    authentication: AuthenticationOptions
    log: LogKeys

    def __post_init__(self) -> None:
        if self.listen.has_tls:
            self.tls.options()
            self.tls.options(web=True)
        self.client_tls.options()
        if not self.client_tls.enabled and None in (self.listen.broker_port, self.listen.web_port):
            raise ValueError(
                "brokerServicePort, webServicePort: brokers without one of these ports need "
                "brokerClientTlsEnabled=true to reach each other"
            )


_HEAD: Final = """Configuration of `quire broker`: every key with its default.
Names are Pulsar's; a broker.conf written for its brokers is read unchanged. The end of this file has the effect of all
other keys. A name that no version of it has is an error. The last value of a key wins."""

BROKER: Final = Process(
    "broker",
    BrokerConfig,
    Grammar.JAVA,
    BROKER_RULES,
    head=_HEAD,
    changes={
        "clusterName": Change(
            default="", doc="Name of the cluster, as given to `quire initialize-cluster-metadata`. Required."
        ),
        "advertisedAddress": Change(
            doc="Host at which clients and other brokers reach this broker; with webServicePort it is the "
            "broker's name. Empty: bindAddress, or this host's name if that is every address."
        ),
    },
)
