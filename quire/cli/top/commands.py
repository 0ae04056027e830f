"""The command `quire top`."""

from __future__ import annotations

import inspect
import json
import os
import sys
from typing import Any, Final

import typer

from quire.cli.admin.errors import DONE, INTERRUPTED, AdminCommandError, CommandLineError
from quire.cli.admin.options import connection_options, flag_option, keyword

HELP: Final = "Watch a cluster: topics by rate, lag or age, subscriptions that stand still, bookies, repairs."
COUNT_MAX: Final = 200
INTERVAL_MIN_S: Final = 0.2


def top_app() -> typer.Typer:
    """Return the command."""
    app = typer.Typer(add_completion=False)
    context = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    sort = typer.Option("rate", help="Order of the topics: rate, lag or age.", metavar="rate|lag|age")
    parameters = [
        context,
        keyword("sort", str, sort),
        keyword("text", str, typer.Option("", "--filter", help="Text that the names of the topics have.")),
        keyword("count", int, typer.Option(50, help="Topics and subscriptions that are asked for, at most 200.")),
        keyword("interval", float, typer.Option(2.0, help="Seconds between two looks.", metavar="S")),
        flag_option("once", "--once", help="Print the tables once; so it is without a terminal."),
        flag_option("as_json", "--json", help="Print the answer of the broker once, as JSON."),
        *connection_options(frozenset()),
    ]

    def top(context: typer.Context, **given: Any) -> None:
        try:
            code = _run(given)
        except AdminCommandError as error:
            print(f"quire top: {error}", file=sys.stderr)
            code = error.code
        except KeyboardInterrupt:
            code = INTERRUPTED
        raise SystemExit(code)

    vars(top)["__signature__"] = inspect.Signature(parameters)
    top.__annotations__ = {each.name: each.annotation for each in parameters}
    app.command("top", help=HELP)(top)
    return app


def _run(given: dict[str, Any]) -> int:
    from quire.cli.admin.running import open_connection, target_of_options
    from quire.cli.top.screen import TopScreen, asked
    from quire.cli.top.state import SORTS, TopState

    if given["sort"] not in SORTS.values():
        raise CommandLineError(f"--sort {given['sort']!r} is none of {', '.join(SORTS.values())}")
    if not 1 <= given["count"] <= COUNT_MAX:
        raise CommandLineError(f"--count {given['count']} is not 1 to {COUNT_MAX}")
    if not INTERVAL_MIN_S <= given["interval"] < 1e6:
        raise CommandLineError(f"--interval {given['interval']} is not {INTERVAL_MIN_S} seconds or more")
    options = {name: value for name, value in given.items() if value}
    state = TopState(sort=given["sort"], filter=given["text"])
    with open_connection(target_of_options(options, os.environ)) as sender:
        if given["as_json"] or given["once"] or not (sys.stdout.isatty() and sys.stdin.isatty()):
            answer = asked(sender, state, given["count"])
            if given["as_json"]:
                print(json.dumps(answer, indent=2, ensure_ascii=False))
            else:
                _print(state, answer)
            sys.stdout.flush()
        else:
            TopScreen(sender, state, interval_s=given["interval"], count=given["count"]).run()
    return DONE


def _print(state: Any, answer: dict[str, Any]) -> None:
    from dataclasses import replace

    from rich.console import Console

    from quire.cli.top.state import Page
    from quire.cli.top.view import heading, summary, table

    console = Console(width=None if sys.stdout.isatty() else 1000, highlight=False)
    console.print(summary(answer))
    for page in Page:
        shown = replace(state, page=page)
        console.print(f"\n{heading(shown)}")
        console.print(table(shown, answer, rows_max=None))
