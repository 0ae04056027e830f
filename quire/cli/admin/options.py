"""Options that all commands of `quire admin` have."""

from __future__ import annotations

import inspect
import os
from typing import Any, Final

import typer

CONNECTION: Final = "Connection"
OUTPUT: Final = "Output"


def connection_options(taken: frozenset[str]) -> list[inspect.Parameter]:
    """Return the options of the connection, without flags that are taken."""
    texts = {
        "quire_context": (("--context",), "NAME", "Context to use.", _contexts),
        "quire_url": (("--url", "--admin-url"), "URL", "Web address of any broker.", None),
        "quire_plugin": (("--auth-plugin",), "NAME", "token, basic or tls, or the original's class.", None),
        "quire_parameters": (("--auth-params",), "TEXT", "Its parameters, such as file:///path of a token.", None),
        "quire_trust": (("--tls-trust-cert-path",), "FILE", "File of the authorities to trust.", None),
        "quire_certificate": (("--tls-cert-file",), "FILE", "File of the own certificate.", None),
        "quire_key": (("--tls-key-file",), "FILE", "File of its key.", None),
        "quire_timeout": (("--timeout", "--request-timeout"), "S", "Seconds to wait for an answer.", None),
    }
    found = []
    for name, (flags, metavar, text, completion) in texts.items():
        left = [each for each in flags if each not in taken]
        if left:
            made = typer.Option(
                None, *left, help=text, metavar=metavar, rich_help_panel=CONNECTION, autocompletion=completion
            )
            found.append(keyword(name, str | None, made))
    insecure = typer.Option(False, "--tls-allow-insecure", help="Trust any certificate.", rich_help_panel=CONNECTION)
    return [*found, keyword("quire_insecure", bool, insecure)]


def flag_option(name: str, *flags: str, help: str) -> inspect.Parameter:
    """Return an option without a value."""
    return keyword(name, bool, typer.Option(False, *flags, help=help, rich_help_panel=OUTPUT))


def keyword(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    """Return a parameter of a function."""
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)


def _contexts(incomplete: str) -> list[str]:
    """Return the contexts that a word may become. Completion must not fail: no file, no words."""
    from quire.cli.admin.contexts import load, path_of
    from quire.cli.admin.errors import CommandLineError

    try:
        return [each for each in load(path_of(os.environ)).contexts if each.startswith(incomplete)]
    except CommandLineError:
        return []
