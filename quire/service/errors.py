"""What can go wrong around a server, before and beside its work."""

from __future__ import annotations


class ServiceError(Exception):
    """Root: catching it catches every failure of the package."""


class ConfigError(ServiceError):
    """The configuration cannot be used. Final: the message names file, line and key, one problem a line."""
