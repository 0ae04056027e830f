"""The command of this folder, whose modules are imported when it runs or shows its help."""

from __future__ import annotations

import typer

from quire.cli.messages.lazily import add_lazily


def add_to(app: typer.Typer) -> None:
    """Add sql to `quire`."""
    add_lazily(app, "sql", "quire.cli.sql.query:SqlFlags:run_sql:TEXT", "Query topics and archives.")
