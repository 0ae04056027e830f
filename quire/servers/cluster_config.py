"""Part of a bk_server.conf, the original's or ours, that shell and operations need to reach a cluster and to find a
bookie's folders."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from autorecovery.config import OldLedgerKeys
from bookie.config import BookieFolders
from quire.metadata.layouts import LAYOUTS, LedgerLayout
from quire.metadata.zookeeper.config import ConnectString, ZooKeeperConfig
from quire.servers.bookie.auth_keys import BookieClientAuthKeys
from quire.servers.bookie.config import BOOKIE
from quire.servers.bookie.host_name import BookieNameKeys
from quire.servers.bookie.layout_keys import LayoutKeys
from quire.servers.bookie.metadata import ClusterMetadataKeys
from quire.servers.bookie.tls_keys import BookieTlsKeys
from quire.servers.keys import AddressKeys, HttpKeys
from quire.service.original_conf import Rules
from quire.service.process_conf import Change, Process
from quire.service.properties import Grammar
from quire.service.unsupported import BOOKIE_RULES
from quire.wire.bookkeeper.entry import DIGEST_TYPES, DigestType


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConfig:
    """ValueError if the keys contradict each other. Folders are relative to the working directory."""

    metadata: ClusterMetadataKeys
    bookie: BookieFolders
    address: AddressKeys
    name: BookieNameKeys
    old_ledgers: OldLedgerKeys
    layouts: LayoutKeys
    tls: BookieTlsKeys
    auth: BookieClientAuthKeys
    http: HttpKeys

    def __post_init__(self) -> None:
        self.tls.client()
        indexes = self.bookie.index_directories
        if indexes and len(indexes) != len(self.bookie.ledger_directories):
            raise ValueError("indexDirectories: there must be one for each of ledgerDirectories")

    @property
    def metadata_service(self) -> str:
        """The URI of the metadata store, from whichever keys say it."""
        return self.metadata.metadata_service

    @property
    def connect_string(self) -> ConnectString:
        """InvalidConnectStringError."""
        return self.metadata.connect_string

    @property
    def zookeeper(self) -> ZooKeeperConfig:
        """InvalidConnectStringError."""
        return self.metadata.zookeeper

    @property
    def layout(self) -> LedgerLayout | None:
        """Return the requested layout; None if any will do. Raises InvalidConnectStringError."""
        name = self.connect_string.layout
        if name is not None:
            return LAYOUTS[name]
        return self.layouts.factory_layout

    @property
    def bookie_id(self) -> str:
        return self.bookie.bookie_id

    @property
    def advertised_address(self) -> str:
        return self.address.advertised_address

    @property
    def port(self) -> int:
        return self.bookie.port

    @property
    def digest(self) -> DigestType:
        return DIGEST_TYPES[self.old_ledgers.digest_type]

    @property
    def password(self) -> str:
        return self.old_ledgers.password

    @property
    def journals(self) -> tuple[str, ...]:
        """Return the folders of the journals, including `current`; their order matters."""
        return _current(self.bookie.journal_directories)

    @property
    def ledgers(self) -> tuple[str, ...]:
        """Return the folders of the entry logs, including `current`."""
        return _current(self.bookie.ledger_directories)

    @property
    def indexes(self) -> tuple[str, ...]:
        """Return the folders of the indexes, including `current`; one for each of `ledgers`."""
        return _current(self.bookie.indexes)


def _current(folders: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"{folder}/current" for folder in folders)


SHELL: Final = Process(
    "shell",
    ClusterConfig,
    Grammar.COMMONS,
    Rules({}, BOOKIE_RULES.aliases),
    changes={"advertisedAddress": Change(doc=BOOKIE.keys()["advertisedAddress"].doc)},
    fixed={"zookeeperSessionExpiredPolicy": None, "zkRetryBackoffStartMs": None, "zkRetryBackoffMaxMs": None},
    others=frozenset(BOOKIE.keys()),
    quiet=True,
)
"""Values of keys that only a bookie needs are not looked at; but an unknown key is an error here too: one that
was to name the cluster would otherwise make the default one the victim. What a file says beyond that is a server's
business, so nothing is logged."""


def load_config(path: str | Path | None) -> ClusterConfig:
    """Read the file; the defaults without one. ConfigError."""
    return SHELL.load(path)
