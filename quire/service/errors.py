"""Errors around a server, outside its work."""

from __future__ import annotations


class ServiceError(Exception):
    """Root: catching it catches every failure of the package."""


class ConfigError(ServiceError):
    """The configuration is invalid. Permanent: the message names file, line and key, one problem a line."""
