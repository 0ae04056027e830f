"""What can go wrong around a server, before and beside its work."""

from __future__ import annotations

from typing import ClassVar


class ServiceError(Exception):
    """Root: catching it catches every failure of the package."""

    passing: ClassVar[bool] = False
    """Whether the same call may succeed when it is made again: in a class whose docstring says "Passing"."""


class ConfigError(ServiceError):
    """The configuration cannot be used. Final: the message names file, line and key, one problem a line."""
