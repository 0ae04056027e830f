"""Command lines of programs, by typer: a function is a command, and its parameters are the arguments and options.

    def command(count: Annotated[int, typer.Option(help="Number of topics.")] = 5) -> int: ...

    def main(arguments: Sequence[str] | None = None) -> int:
        return run_command(command, arguments, name="scripts/example", text=__doc__)

A command that cannot be understood ends with 2 and one message on standard error, and --help with 0.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, ParamSpec

import typer

P = ParamSpec("P")
USAGE_ERROR = 2
"""Exit code of a command line that cannot be understood."""


def run_command(
    function: Callable[..., int], arguments: Sequence[str] | None = None, *, name: str, text: str | None
) -> int:
    """Run a program with one command; return its exit code.

    Args:
        function: the command. It returns the exit code, and may raise typer.BadParameter.
        arguments: None for those of this process.
        name: the program, as it is called.
        text: docstring for --help.
    """
    return run_app(command_app(function, text), arguments, name=name)


def command_app(function: Callable[..., int], text: str | None) -> typer.Typer:
    """Return a program with one command, which `quire` may also have as one of its own."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command(help=help_of(text))(ending(function))
    return app


def run_app(app: typer.Typer, arguments: Sequence[str] | None = None, *, name: str) -> int:
    """Run a program with several commands; return its exit code. `arguments`: None for those of this process."""
    try:
        app(list(sys.argv[1:] if arguments is None else arguments), prog_name=name)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(bool(end.code))
    return 0


def ending(function: Callable[P, int]) -> Callable[P, None]:
    """Return a command that ends with the exit code that a function returns."""

    @wraps(function)
    def command(*args: P.args, **kwargs: P.kwargs) -> None:
        raise typer.Exit(function(*args, **kwargs))

    return command


def help_of(text: str | None) -> str:
    """Return the help of a program from its docstring. Lines stay as they are, but for those of the first paragraph.

    >>> help_of("Do\\nit.\\n\\n    a [b]\\n    c")
    'Do it.\\n\\n\\x08\\n    a \\\\[b]\\n    c'
    """
    first, *others = (text or "").strip().replace("[", "\\[").split("\n\n")
    return "\n\n".join([" ".join(first.split()), *(f"\b\n{each}" for each in others)])


def one_of(name: str, given: Any, choices: Sequence[Any]) -> Any:
    """Return an argument that has to be one of some values. Raises typer.BadParameter."""
    if given not in choices:
        raise typer.BadParameter(f"{name} {given}: it must be one of {', '.join(map(str, choices))}")
    return given
