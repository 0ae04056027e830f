"""Profile a running server, or one that is started for it, with the sampling profiler py-spy: scripts/profile.

    scripts/profile --pid 4711                                  the functions of the next 10 s, as a table
    scripts/profile --pid 4711 --seconds 30 --svg flame.svg     the same as a flame graph, for a browser
    scripts/profile -- .venv/bin/quire standalone               start it, sample until it ends or for --seconds, stop it

py-spy reads the memory of the process from outside: the server is not changed and hardly slowed. It needs the right to
trace the process (same user and kernel.yama.ptrace_scope=0, or root).
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from quire.service.programs.command_line import run_command

RATE = 250
"""Samples a second. A publish takes 0.1 ms, so a second of load has every function of its path."""
ROWS = 30


def table(folded: Iterable[str], rows: int = ROWS) -> list[str]:
    """Return the functions with the most samples, from lines `thread;outermost;...;innermost COUNT`: samples in the
    function itself, and in it or what it called, both as a share of all."""
    own: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for line in folded:
        stack, _, count = line.rstrip("\n").rpartition(" ")
        if not stack:
            continue
        functions = [function for function in stack.split(";") if function]
        own[functions[-1]] += int(count)
        for function in set(functions):
            total[function] += int(count)
    samples = sum(own.values())
    if not samples:
        return ["no samples: the process was idle, or has ended"]
    lines = [f"{samples} samples", f"{'itself':>8} {'with calls':>11}  function"]
    for function, own_count in own.most_common(rows):
        lines.append(f"{own_count / samples:8.1%} {total[function] / samples:11.1%}  {function}")
    return lines


def record(options: Sequence[str], target: Sequence[str]) -> int:
    """Run py-spy; its exit code."""
    spy = Path(sys.executable).with_name("py-spy")
    return subprocess.run([spy, "record", *options, *target], stdout=subprocess.DEVNULL, check=False).returncode


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    return run_command(profile, arguments, name="scripts/profile", text=__doc__)


def profile(
    command: Annotated[
        list[str] | None, typer.Argument(metavar="[-- COMMAND...]", help="Command to start and sample, after --.")
    ] = None,
    pid: Annotated[int | None, typer.Option(help="Process to attach to; the ready line of a server has it.")] = None,
    seconds: Annotated[int, typer.Option(help="Duration of the sampling.")] = 10,
    svg: Annotated[
        Path | None, typer.Option(help="Write a flame graph to this file instead of printing a table.")
    ] = None,
    idle: Annotated[bool, typer.Option("--idle", help="Also count waiting threads.")] = False,
) -> int:
    if (pid is None) == (not command):
        raise typer.BadParameter("give either --pid or a command behind --")
    target = ["--pid", str(pid)] if pid is not None else ["--", *(command or [])]
    options = ["--duration", str(seconds), "--rate", str(RATE), *(["--idle"] if idle else [])]
    if svg is not None:
        code = record([*options, "--format", "flamegraph", "--output", str(svg)], target)
        print(f"flame graph: {svg}" if svg.exists() else "no flame graph was written", flush=True)
        return code
    with tempfile.TemporaryDirectory() as folder:
        raw = Path(folder) / "stacks"
        code = record([*options, "--format", "raw", "--output", str(raw)], target)
        if raw.exists():
            print("\n".join(table(raw.read_text().splitlines())), flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
