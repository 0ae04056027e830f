"""Part of a bk_server.conf, the original's or ours, that shell, operations and auto recovery need to reach a cluster."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from quire.metadata.layouts import LAYOUTS, LedgerLayout
from quire.metadata.zookeeper.config import ConnectString, ZooKeeperConfig, parse_connect_string
from quire.servers.bookie.config import DEFAULT_METADATA_URI, BookieServerConfig, check_tls_keys
from quire.servers.zookeeper.keys import PULSAR_PREFIX, credentials, tls
from quire.service.config import build, conf_key, keys_of, parse, read_text
from quire.service.errors import ConfigError
from quire.wire.bookkeeper.entry import DIGEST_TYPES, DigestType

T = TypeVar("T")

_BOOKIE_KEYS = keys_of(BookieServerConfig)
_JOURNALS: tuple[str, ...] = (_BOOKIE_KEYS["journalDirectories"].default,)
_LEDGERS: tuple[str, ...] = (_BOOKIE_KEYS["ledgerDirectories"].default,)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConfig:
    """ValueError if the keys contradict each other. Folders are relative to the working directory."""

    metadata_uri: str = conf_key("metadataServiceUri", "")
    zk_servers: str = conf_key("zkServers", "")
    zk_ledgers_root: str = conf_key("zkLedgersRootPath", "/ledgers")
    zk_timeout_ms: int = conf_key("zkTimeout", 10_000, minimum=100)
    zk_secure: bool = conf_key("zkEnableSecurity", False)
    zk_auth: str = conf_key("quireZooKeeperAuth", "")
    zk_tls: bool = conf_key("quireZooKeeperTls", False)
    zk_tls_ca_file: str = conf_key("quireZooKeeperTlsCaFile", "")
    zk_tls_certificate_file: str = conf_key("quireZooKeeperTlsCertificateFile", "")
    zk_tls_key_file: str = conf_key("quireZooKeeperTlsKeyFile", "")
    ledger_manager_class: str = conf_key("ledgerManagerFactoryClass", "")
    journal_directories: tuple[str, ...] = conf_key("journalDirectories", ())
    journal_directory: tuple[str, ...] = conf_key("journalDirectory", ())
    """The older name."""
    ledger_directories: tuple[str, ...] = conf_key("ledgerDirectories", _LEDGERS)
    index_directories: tuple[str, ...] = conf_key("indexDirectories", ())
    bookie_id: str = conf_key("bookieId", "")
    advertised_address: str = conf_key("advertisedAddress", "")
    port: int = conf_key("bookiePort", 3181, minimum=0, maximum=65535)
    digest_type: str = conf_key("digestType", "CRC32", choices=tuple(DIGEST_TYPES))
    """With `passwd`: of ledgers whose metadata keeps neither."""
    password: str = conf_key("passwd", "")

    def __post_init__(self) -> None:
        if self.zk_auth and self.zk_auth.count(":") < 2:
            raise ValueError("quireZooKeeperAuth: not of the form digest:user:password")
        check_tls_keys(self.zk_tls, self.zk_tls_ca_file, self.zk_tls_certificate_file, self.zk_tls_key_file)
        if self.index_directories and len(self.index_directories) != len(self.ledger_directories):
            raise ValueError("indexDirectories: there must be one for each of ledgerDirectories")

    @property
    def metadata_service(self) -> str:
        """The URI of the metadata store, from whichever keys say it."""
        if self.metadata_uri:
            return self.metadata_uri
        if self.zk_servers:
            return f"zk+null://{self.zk_servers.replace(',', ';')}{self.zk_ledgers_root}"
        return DEFAULT_METADATA_URI

    @property
    def connect_string(self) -> ConnectString:
        """InvalidConnectStringError."""
        uri = self.metadata_service
        plain = uri.removeprefix(PULSAR_PREFIX)
        if plain != uri and not plain.startswith("zk:"):
            plain = f"zk:{plain}"
        return parse_connect_string(plain)

    @property
    def zookeeper(self) -> ZooKeeperConfig:
        """InvalidConnectStringError."""
        where = self.connect_string
        seconds = self.zk_timeout_ms / 1000
        return ZooKeeperConfig(
            servers=where.servers,
            chroot=where.chroot,
            session_timeout_s=seconds,
            connect_timeout_s=seconds,
            secure=self.zk_secure,
            auth=credentials(self),
            tls=tls(self),
        )

    @property
    def layout(self) -> LedgerLayout | None:
        """Return the requested layout; None if any will do. Raises InvalidConnectStringError."""
        name = self.connect_string.layout
        if name is not None:
            return LAYOUTS[name]
        factory = self.ledger_manager_class.rpartition(".")[2]
        return next((layout for layout in LAYOUTS.values() if layout.factory == factory), None)

    @property
    def digest(self) -> DigestType:
        return DIGEST_TYPES[self.digest_type]

    @property
    def journals(self) -> tuple[str, ...]:
        """Folders of the journals, `current` included; their order matters."""
        folders = self.journal_directories or self.journal_directory or _JOURNALS
        return tuple(f"{folder}/current" for folder in folders)

    @property
    def ledgers(self) -> tuple[str, ...]:
        """Folders of the entry logs, `current` included."""
        return tuple(f"{folder}/current" for folder in self.ledger_directories)

    @property
    def indexes(self) -> tuple[str, ...]:
        """Folders of the indexes, `current` included; one for each of `ledgers`."""
        return tuple(f"{folder}/current" for folder in self.index_directories or self.ledger_directories)


def load_config(path: str | Path | None) -> ClusterConfig:
    """Read the file; the defaults without one. ConfigError.

    Values of keys that only a bookie needs are not looked at; but a key that nobody knows is an error here too: one that
    was to name the cluster would otherwise make the default one the victim.
    """
    if path is None:
        return ClusterConfig()
    not_ours = _BOOKIE_KEYS.keys() - keys_of(ClusterConfig).keys()
    return build_part(ClusterConfig, path, read_text(path), lambda key: key not in not_ours)


def build_part(cls: type[T], path: str | Path, text: str, looks_at: Callable[[str], bool]) -> T:
    """A `cls` of what the lines with some keys of a file say. ConfigError."""
    lines = [line if looks_at(line.partition("=")[0].strip()) else "" for line in text.split("\n")]
    values, _ = parse("\n".join(lines), cls, source=str(path))
    try:
        return build(cls, values)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error
