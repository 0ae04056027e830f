"""Flags of a command as the fields of a frozen dataclass, and the typer command made of them.

A command with forty flags would otherwise list each of them as a parameter, hand it on by name, and list it again where
it is used. Here a field has the type, the default, the names and the help text; a flag without a field does not exist.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from typing import Annotated, Any, TypeVar, get_type_hints

import typer

F = TypeVar("F")


def flag(default: Any, *names: str, help: str, env: str | None = None, hidden_default: bool = False) -> Any:
    """Return the field of an option. `env`: environment variable that gives the default."""
    metadata = {"names": names, "help": help, "env": env, "show": not hidden_default}
    if isinstance(default, tuple):
        return dataclasses.field(default=default, metadata={**metadata, "many": True})
    return dataclasses.field(default=default, metadata=metadata)


def argument(help: str, *, name: str) -> Any:
    """Return the field of a positional argument."""
    return dataclasses.field(default=None, metadata={"argument": name, "help": help})


def add_command(app: typer.Typer, name: str, flags: type[F], run: Callable[[F], int], text: str) -> None:
    """Add a command to `app` which calls `run` with the flags and ends with the exit code that it returns."""

    def command(**given: Any) -> None:
        raise SystemExit(run(flags(**{key: _plain(value) for key, value in given.items()})))

    hints = get_type_hints(flags)
    assert dataclasses.is_dataclass(flags)
    parameters = [_parameter(each, hints[each.name]) for each in dataclasses.fields(flags)]
    vars(command)["__signature__"] = inspect.Signature(parameters)
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    command.__doc__ = text
    app.command(name)(command)


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _parameter(field: dataclasses.Field[Any], hint: Any) -> inspect.Parameter:
    told = field.metadata
    if "argument" in told:
        kind: Any = list[str] if hint == tuple[str, ...] else hint
        note = Annotated[kind, typer.Argument(metavar=told["argument"], help=told["help"], show_default=False)]
        return inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, annotation=note)
    many = told.get("many", False)
    option = typer.Option(*told["names"], help=told["help"], envvar=told["env"], show_default=told["show"])
    default: Any = [] if many else field.default
    wanted: Any = list[str] if many else hint
    return inspect.Parameter(
        field.name, inspect.Parameter.KEYWORD_ONLY, annotation=Annotated[wanted, option], default=default
    )
