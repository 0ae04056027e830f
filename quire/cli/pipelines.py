"""`quire pipeline ...`: the programs of scripts/pipelines as commands, each imported when it is used."""

from __future__ import annotations

import importlib
from functools import partial
from typing import Any, Final

import typer

from quire.cli.lazy import LazyCommand, command_of, lazy_group

HELP: Final = "Run a pipeline from topics to files or to a topic, with Spark."
PIPELINES: Final = {
    "archive": "Topics to Parquet files by publish date.",
    "window": "Counts of messages by key and window, to a topic.",
    "copy-topic": "Topics to a topic.",
    "offload": "Closed ledgers to Parquet files, without Spark.",
    "wordcount": "Counts of words by window, to a topic.",
}


def pipeline_command() -> Any:
    """Return the group as a command of `quire`."""
    return command_of(pipeline_app())


def pipeline_app() -> typer.Typer:
    """Return the group of commands."""
    parts = {name: LazyCommand(text, partial(_command, name)) for name, text in PIPELINES.items()}
    app = typer.Typer(
        add_completion=False, cls=lazy_group(parts), no_args_is_help=True, pretty_exceptions_enable=False, help=HELP
    )

    @app.callback()
    def pipeline() -> None:
        """Hold the commands together: typer needs a function for a group without commands of its own."""

    pipeline.__doc__ = HELP
    return app


def _command(name: str) -> Any:
    module = importlib.import_module(f"quire.spark.pipelines.{name.replace('-', '_')}")
    return command_of(module.program())
