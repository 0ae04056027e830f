"""Options of the console."""

from __future__ import annotations

from dataclasses import dataclass

from quire.service.config import conf_key


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleOptions:
    """Options of the console at the web port."""

    enabled: bool = conf_key(
        "quireConsoleEnabled",
        True,
        doc="true: the web port serves the console at /console/. Its data need the permissions of the admin REST.",
    )
