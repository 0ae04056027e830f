"""Errors of `quire zookeeper`."""

from __future__ import annotations

from quire.servers.errors import CliError


class ZooKeeperServerError(CliError):
    """The server cannot be started, or has ended."""
