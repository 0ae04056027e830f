"""One command of the shell: its name, its arguments, its function."""

from __future__ import annotations

import textwrap
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from quire.cli.shell.arguments import Arguments, CommandOption
from quire.cli.shell.context import Shell

WIDTH = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    name: str
    help: str
    run: Callable[[Shell, Arguments], Awaitable[int]]
    """Function that returns the exit code. Raises ShellError, and errors of the packages below that operators can
    fix."""
    options: Sequence[CommandOption] = ()
    operands: Sequence[str] = ()

    def usage(self) -> str:
        """Return the text of `help <command>`."""
        words = [f"quire shell {self.name}"]
        words += ["[options]"] if self.options else []
        words += [f"<{name}>" for name in self.operands]
        lines = [f"{self.name}: {self.help}", f"usage: {' '.join(words)}"]
        for option in self.options:
            lines.append(f"  {option.words}{' (required)' if option.required else ''}")
            about = option.help + ("" if option.default is None else f" (default {option.default})")
            lines += textwrap.wrap(about, WIDTH, initial_indent=" " * 8, subsequent_indent=" " * 8)
        return "\n".join(lines)
