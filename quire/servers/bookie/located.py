"""Configuration of a bookie, completed on its machine: host, port and folders; and the address of its metadata."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Final

from quire.metadata.bookies import check_bookie_id
from quire.metadata.errors import InvalidConnectStringError, InvalidPathError
from quire.metadata.zookeeper.store import ZooKeeperConfig
from quire.servers.addresses import free_port
from quire.servers.bookie.config import BookieServerConfig
from quire.servers.bookie.host_name import own_host
from quire.service.errors import ConfigError

_CONNECT_TIMEOUT_S: Final = 30.0
"""Deadline of one attempt; `open_when_there` makes further ones."""


def zookeeper_config(config: BookieServerConfig) -> tuple[ZooKeeperConfig, str]:
    """Return the address of the metadata store, and the ledgers' root in it. Raises ConfigError."""
    config.metadata.check_scheme()
    try:
        made = replace(config.metadata.zookeeper_of_server, connect_timeout_s=_CONNECT_TIMEOUT_S)
        return made, config.metadata.connect_string.ledgers_root
    except InvalidConnectStringError as error:
        raise ConfigError(f"metadataServiceUri: {error}") from error


def located(config: BookieServerConfig, ledgers_root: str) -> BookieServerConfig:
    """Complete the configuration with the values of this machine: host, port, folders. Raises ConfigError."""
    wanted = config.bookie
    host = config.address.advertised_address or own_host(config.process)
    folders = (*wanted.journal_directories, *wanted.ledger_directories, *wanted.index_directories)
    # A cookie contains folders as configured, and relative paths unresolved.
    root = "" if all(map(os.path.isabs, folders)) else os.getcwd()
    ledgers, indexes = _absolute(wanted.ledger_directories), _absolute(wanted.index_directories)
    bookie = replace(
        wanted,
        host=host,
        port=wanted.port or free_port(),
        journal_directories=_absolute(wanted.journal_directories),
        ledger_directories=ledgers,
        index_directories=() if indexes == ledgers else indexes,
        ledgers_root=ledgers_root,
        root=root,
    )
    made = replace(config, bookie=bookie, address=replace(config.address, advertised_address=host))
    try:
        check_bookie_id(made.id)
    except InvalidPathError as error:
        raise ConfigError(f"bookieId: {error}") from error
    return made


def _absolute(folders: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(map(os.path.abspath, folders))
