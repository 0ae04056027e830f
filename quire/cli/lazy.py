"""Groups of commands whose parts are imported when they are used, so that `--help` is quick."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
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


def lazy_group(
    parts: Mapping[str, LazyCommand], contents: Mapping[str, Mapping[str, str]] = MappingProxyType({})
) -> type[TyperGroup]:
    """Return a class of groups that have these commands beside those which are added to them.

    Args:
        parts: the commands, by name.
        contents: the help by heading and command, which replaces what the commands say of themselves. Its order is the
            order of the help; commands without a line in it come last.
    """
    lines = {
        name: LazyCommand(line, dict, section) for section, each in contents.items() for name, line in each.items()
    }

    class LazyGroup(TyperGroup):
        def list_commands(self, ctx: Any) -> list[str]:
            found = [*super().list_commands(ctx), *parts]
            order = {name: index for index, name in enumerate(lines)}
            return sorted(found, key=lambda name: order.get(name, len(order)))

        def get_command(self, ctx: Any, cmd_name: str) -> Any:
            if cmd_name in lines and _shows_help(ctx):
                return _stand_in(cmd_name, lines[cmd_name])
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
