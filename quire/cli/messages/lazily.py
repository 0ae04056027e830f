"""Commands whose modules are imported when they run: `quire --help` and servers do not load a client."""

from __future__ import annotations

import importlib

import typer

from quire.cli.messages.flags import add_command


def add_lazily(app: typer.Typer, name: str, where: str, short: str) -> None:
    """Add a command that is made from `where` when it is called: "module:FlagsClass:run:TEXT".

    All its arguments, --help among them, go to the command itself, so unknown flags are refused by it."""

    def command(context: typer.Context) -> None:
        module_name, flags, run, text = where.split(":")
        module = importlib.import_module(module_name)
        inner = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
        add_command(inner, name, getattr(module, flags), getattr(module, run), getattr(module, text))
        inner(args=context.args, prog_name=context.command_path, standalone_mode=True)

    settings = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}
    app.command(name, help=short, context_settings=settings, add_help_option=False)(command)
