"""`quire admin`: the commands of an administrator, over the admin REST."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Final

import typer

from quire.cli.admin.groups import ALIASES, GROUPS, group
from quire.cli.lazy import LazyCommand, command_of, lazy_group

HELP: Final = "Administrate a cluster over its admin REST, with the verbs of pulsar-admin."
_GROUPS: Final = "Resources"
_ANSWERS: Final = "Diagnosis"
_FILES: Final = "Backups"
_CONTEXTS: Final = "Contexts"


def _group(name: str) -> Callable[[], Any]:
    def load() -> Any:
        from quire.cli.admin.commands import group_app

        return command_of(group_app(group(name)))

    return load


def _root_verb(name: str) -> Callable[[], Any]:
    def load() -> Any:
        from quire.cli.admin.commands import verb_command
        from quire.cli.admin.table import root

        verb = root.GROUP.find(name)
        assert verb is not None
        return verb_command(verb)

    return load


def _contexts() -> Any:
    from quire.cli.admin.context_commands import app as contexts_app

    return command_of(contexts_app)


def _backup() -> Any:
    from quire.cli.backup.commands import backup_app

    return command_of(backup_app())


def _restore() -> Any:
    from quire.cli.backup.commands import restore_app

    return command_of(restore_app())


def parts() -> dict[str, LazyCommand]:
    """Return the parts of the command."""
    return {
        **{name: LazyCommand(text, _group(name), _GROUPS) for name, (_, _, text) in GROUPS.items()},
        **{name: LazyCommand("", _group(real), hidden=True) for name, real in ALIASES.items()},
        "explain": LazyCommand("Print why nothing is delivered, and the remedies.", _root_verb("explain"), _ANSWERS),
        "diff": LazyCommand("Print the policies in which two namespaces differ.", _root_verb("diff"), _ANSWERS),
        "backup": LazyCommand("Write a topic, or the metadata of a cluster, into a file.", _backup, _FILES),
        "restore": LazyCommand("Restore a topic, or the metadata of a cluster, from a file.", _restore, _FILES),
        "context": LazyCommand("Clusters by name, with their addresses and credentials.", _contexts, _CONTEXTS),
    }


def admin_app() -> typer.Typer:
    """Return the command. Only the group that is used is loaded."""
    from quire.cli.admin.options import connection_options

    app = typer.Typer(cls=lazy_group(parts()), add_completion=False, no_args_is_help=True, help=HELP)

    def admin(context: typer.Context, **given: Any) -> None:
        context.obj = {name: value for name, value in given.items() if value is not None and value is not False}

    parameters = [inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)]
    parameters += connection_options(frozenset())
    admin.__doc__ = HELP
    vars(admin)["__signature__"] = inspect.Signature(parameters)
    admin.__annotations__ = {each.name: each.annotation for each in parameters}
    app.callback()(admin)
    return app
