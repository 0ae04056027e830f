"""Groups of commands whose parts are imported when they are used, so that `--help` is quick."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup


@dataclass(frozen=True, slots=True)
class LazyCommand:
    """A command that is not loaded yet."""

    help: str
    load: Callable[[], Any]
    """Return the command of typer."""
    section: str = ""
    hidden: bool = False


def lazy_group(parts: Mapping[str, LazyCommand]) -> type[TyperGroup]:
    """Return a class of groups that have these commands beside those which are added to them."""

    class LazyGroup(TyperGroup):
        def list_commands(self, ctx: Any) -> list[str]:
            return [*super().list_commands(ctx), *parts]

        def get_command(self, ctx: Any, cmd_name: str) -> Any:
            if cmd_name not in parts:
                return super().get_command(ctx, cmd_name)
            part = parts[cmd_name]
            if _shows_help(ctx):
                return _stand_in(cmd_name, part)
            loaded = part.load()
            loaded.name = cmd_name
            return loaded

        def format_help(self, ctx: Any, formatter: Any) -> None:
            ctx.meta["quire.help"] = True
            super().format_help(ctx, formatter)

    return LazyGroup


def _shows_help(ctx: Any) -> bool:
    """Return whether only names and help texts are needed."""
    return bool(ctx.meta.get("quire.help"))


def _stand_in(name: str, part: LazyCommand) -> TyperCommand:
    return TyperCommand(name, help=part.help, rich_help_panel=part.section or None, hidden=part.hidden)


def command_of(app: typer.Typer) -> Any:
    """Return the command of a typer application."""
    return typer.main.get_command(app)
