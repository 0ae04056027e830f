"""Errors around a server, outside its work."""

from __future__ import annotations

from typing import ClassVar


class ServiceError(Exception):
    """Root: catching it catches every failure of the package."""

    passing: ClassVar[bool] = False
    """Mark of errors after which the same call may succeed: those of a class whose docstring says "Passing"."""


class ConfigError(ServiceError):
    """The configuration is invalid. Permanent: the message names file, line and key, one problem a line."""
