"""Commands of typer, made of the tables of verbs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import typer

from quire.cli.admin.options import connection_options, flag_option, keyword
from quire.cli.admin.running import run_verb
from quire.cli.admin.values import FLAG
from quire.cli.admin.verbs import Verb, VerbGroup, VerbParameter
from quire.cli.lazy import LazyCommand, command_of, lazy_group


def group_app(group: VerbGroup) -> typer.Typer:
    """Return the command of a group, whose verbs become commands when they are used."""
    parts = {each.name: _part(group.name, each) for each in group.verbs}
    parts |= {each.name: replace(_part(group.name, each), hidden=True) for each in group.hidden}
    app = typer.Typer(cls=lazy_group(parts), no_args_is_help=True, add_completion=False, help=group.help)
    app.callback()(_nothing(group.help))
    return app


def verb_command(verb: Verb, group: str = "") -> Any:
    """Return the command of a verb."""
    app = typer.Typer(add_completion=False)
    app.command(verb.name, help=verb.help)(function(verb, f"{group} {verb.name}".strip()))
    return command_of(app)


def _part(group: str, verb: Verb) -> LazyCommand:
    return LazyCommand(verb.help, partial(verb_command, verb, group), verb.section)


def function(verb: Verb, title: str) -> Callable[..., None]:
    """Return a function with the signature that typer reads. `title`: the command, in error texts."""
    taken = {flag for each in verb.parameters for flag in each.flags}
    names: dict[str, str] = {}
    parameters = [_context()]
    for index, each in enumerate(verb.parameters):
        names[f"p{index}_{each.name}"] = each.name
        parameters.append(_parameter(f"p{index}_{each.name}", each))
    parameters += _common(verb, taken)

    def run(context: typer.Context, **given: Any) -> None:
        texts = {own: given.pop(name) for name, own in names.items()}
        raise SystemExit(run_verb(verb, title, texts, {**(context.obj or {}), **_only_given(given)}))

    vars(run)["__signature__"] = inspect.Signature(parameters)
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run


def _only_given(given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if value is not None and value is not False}


def _nothing(help: str) -> Callable[[], None]:
    def nothing() -> None:
        pass

    nothing.__doc__ = help
    return nothing


def _context() -> inspect.Parameter:
    return inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)


def _parameter(name: str, parameter: VerbParameter) -> inspect.Parameter:
    kind = parameter.kind
    completion = _completing(kind.choices) if kind.choices else None
    metavar = kind.metavar or None
    default: Any
    if not parameter.flags:
        default = ... if parameter.required else None
        made = typer.Argument(
            default,
            help=parameter.help,
            metavar=f"[{metavar}]" if not parameter.required else metavar,
            autocompletion=completion,
        )
        return keyword(name, str if parameter.required else str | None, made)
    if kind is FLAG:
        return keyword(name, bool, typer.Option(False, *parameter.flags, help=parameter.help))
    default = ... if parameter.required else parameter.default
    annotation: Any = str if parameter.required else str | None
    if kind.is_list:
        annotation = list[str] if parameter.required else list[str] | None
    made = typer.Option(default, *parameter.flags, help=parameter.help, metavar=metavar, autocompletion=completion)
    return keyword(name, annotation, made)


def _completing(choices: tuple[str, ...]) -> Callable[[str], list[str]]:
    return lambda incomplete: [each for each in choices if each.lower().startswith(incomplete.lower())]


def _common(verb: Verb, taken: set[str]) -> list[inspect.Parameter]:
    """Return the options that all verbs have, without flags that the verb itself has."""
    found = [flag_option("as_json", "--json", help="Print the answer as JSON.")]
    if verb.changes:
        found.append(flag_option("dry_run", "--dry-run", help="Print what would be requested; change nothing."))
    if verb.destroys:
        found.append(flag_option("yes", "--yes", "-y", help="Do not ask."))
    return [*found, *connection_options(frozenset(taken))]
