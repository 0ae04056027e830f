"""The commands `quire admin backup` and `restore`."""

from __future__ import annotations

import inspect
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import typer

from quire.cli.admin.errors import DONE, INTERRUPTED, AdminCommandError, CommandLineError
from quire.cli.admin.options import connection_options, flag_option, keyword

BACKUP_HELP: Final = "Write a topic, or the metadata of a cluster, into a file."
RESTORE_HELP: Final = "Restore a topic, or the metadata of a cluster, from a file."
_STORE_HELP: Final = (
    "Metadata store: zk:host:2181,host:2181/chroot, or standalone:DIRECTORY, the data directory of a stopped server."
)
_CONF: Final = keyword(
    "conf", Path | None, typer.Option(None, help="A broker.conf with the keys of the connection to ZooKeeper.")
)
_FILE: Final = keyword("file", Path, typer.Argument(..., help="The file.", metavar="FILE"))
_JSON: Final = flag_option("as_json", "--json", help="Print the result as JSON.")
_PROGRESS_S: Final = 0.5
Work = Callable[[Mapping[str, Any], Mapping[str, Any]], dict[str, Any] | list[dict[str, Any]]]
"""Takes the options of a command and those of the connection; returns its result, or rows of it."""


def backup_app() -> typer.Typer:
    """Return `quire admin backup`."""
    app = _app(BACKUP_HELP)
    topic = keyword("topic", str, typer.Argument(..., help="The topic.", metavar="TOPIC"))
    _add(
        app,
        "backup",
        "topic",
        "Write a topic: entries, subscriptions, schemas, policies.",
        (topic, _FILE),
        _back_up_topic,
    )
    store = keyword(
        "store", str, typer.Option("", "--metadata-store", "-md", help=f"{_STORE_HELP} Without it a broker is asked.")
    )
    _add(app, "backup", "cluster", "Write the metadata of a cluster.", (_FILE, store, _CONF), _back_up_cluster)
    _add(app, "backup", "verify", "Read a file to its end, and print what it has.", (_FILE,), _verify, local=True)
    return app


def restore_app() -> typer.Typer:
    """Return `quire admin restore`."""
    app = _app(RESTORE_HELP)
    to = keyword("to", str, typer.Option("", "--topic", help="Name of the topic to make, if it is another."))
    expire = flag_option("expire", "--expire", help="Also with messages that its TTL or quota of age drops at once.")
    _add(
        app,
        "restore",
        "topic",
        "Restore a topic, which must not exist. Run it again after an error.",
        (_FILE, to, expire),
        _restore_topic,
    )
    store = keyword("store", str, typer.Option(..., "--metadata-store", "-md", help=f"{_STORE_HELP} It must be empty."))
    text = "Restore metadata into an empty store, before servers start. Run it again after an error."
    _add(app, "restore", "cluster", text, (_FILE, store, _CONF), _restore_cluster, local=True)
    _add(app, "restore", "list", "List the topics whose restoration is not complete.", (), _list_restorations)
    return app


def _app(text: str) -> typer.Typer:
    app = typer.Typer(no_args_is_help=True, add_completion=False, help=text)

    def callback() -> None:
        pass

    callback.__doc__ = text
    app.callback()(callback)
    return app


def _add(
    app: typer.Typer,
    group: str,
    name: str,
    text: str,
    own: tuple[inspect.Parameter, ...],
    work: Work,
    *,
    local: bool = False,
) -> None:
    """Add a command. `local`: it makes no requests, and has no options of the connection."""
    context = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    parameters = [context, *own, _JSON, *([] if local else connection_options(frozenset()))]

    def run(context: typer.Context, **given: Any) -> None:
        title = f"admin {group} {name}"
        options = {**(context.obj or {}), **{key: value for key, value in given.items() if value}}
        try:
            result = work(given, options)
        except AdminCommandError as error:
            print(f"quire {title}: {error}", file=sys.stderr)
            raise SystemExit(error.code) from None
        except KeyboardInterrupt:
            raise SystemExit(INTERRUPTED) from None
        if given["as_json"]:
            print(json.dumps(result, indent=2, ensure_ascii=False))
        else:
            for each in result if isinstance(result, list) else [result]:
                print(_line(each))
        sys.stdout.flush()
        raise SystemExit(DONE)

    vars(run)["__signature__"] = inspect.Signature(parameters)
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    app.command(name, help=text)(run)


def _line(result: Mapping[str, Any]) -> str:
    """Return a result as text: lists by their items, times in UTC.

    >>> _line({"some_entries": 9, "begunMs": 0, "unfinished": ["a", "b"]})
    'some entries 9, begun 1970-01-01T00:00:00Z, unfinished a b'
    """
    parts: list[str] = []
    for name, value in result.items():
        if name.endswith("Ms"):
            name, value = name.removesuffix("Ms"), time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(value / 1000))
        parts.append(f"{name.replace('_', ' ')} {' '.join(value) if isinstance(value, list) else value}")
    return ", ".join(parts)


def _back_up_topic(given: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    from quire.cli.backup.topic_backup import TopicBackup

    name = _topic(given["topic"])
    with _sender(options) as sender:
        entries = TopicBackup(sender, name, Shown("backup")).write(given["file"], _header())
    return {"topic": name.full, "entries": entries, "file": str(given["file"])}


def _back_up_cluster(given: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    from quire.cli.backup import cluster

    if given["store"]:
        count = cluster.back_up_store(given["store"], given["file"], _header(), given["conf"])
    else:
        with _sender(options) as sender:
            count = cluster.back_up(sender, given["file"], _header())
    return {"nodes": count, "file": str(given["file"])}


def _verify(given: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    from quire.cli.backup.file import BackupReader

    with BackupReader(given["file"]) as file:
        found = file.verify()
    names = {"E": "entries", "S": "subscription_records", "N": "nodes"}
    shown: dict[str, Any] = {
        key: found.header[key] for key in ("kind", "topic", "partitions", "quire", "made_ms") if key in found.header
    }
    return {
        **shown,
        **{name: found.counts[kind] for kind, name in names.items() if kind in found.counts},
        "backup": found.id,
    }


def _restore_topic(given: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    from quire.cli.backup.topic_restore import TopicRestore

    to = _topic(given["to"]) if given["to"] else None
    with _sender(options) as sender:
        name, entries = TopicRestore(sender, given["file"], Shown("restore"), to=to, expire=given["expire"]).run()
    return {"topic": name.full, "entries": entries}


def _list_restorations(given: Mapping[str, Any], options: Mapping[str, Any]) -> list[dict[str, Any]]:
    from quire.cli.admin.verbs import ROOT, Request

    with _sender(options) as sender:
        found: list[dict[str, Any]] = sender.send(Request("GET", f"{ROOT}quireRestores"))
    return found


def _restore_cluster(given: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    from quire.cli.backup import cluster

    return {"nodes": cluster.restore(given["store"], given["file"], given["conf"]), "store": given["store"]}


def _sender(options: Mapping[str, Any]) -> Any:
    from quire.cli.admin.running import open_connection, target_of_options

    return open_connection(target_of_options(options, os.environ))


def _topic(text: str) -> Any:
    from quire.wire.pulsar.errors import InvalidNameError
    from quire.wire.pulsar.names import TopicName

    try:
        return TopicName.parse(text)
    except InvalidNameError as error:
        raise CommandLineError(f"TOPIC {text!r}: {error}") from None


def _header() -> dict[str, Any]:
    from quire.distribution import installed_version

    return {"made_ms": time.time_ns() // 1_000_000, "quire": installed_version()}


class Shown:
    """Progress on standard error, if that is a terminal."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._shown_at = 0.0

    def __call__(self, done: int, every: int) -> None:
        now = time.monotonic()
        if sys.stderr.isatty() and (now > self._shown_at + _PROGRESS_S or done == every):
            self._shown_at = now
            print(f"\r{self._what}: {done} of {every} entries", end="\n" if done == every else "", file=sys.stderr)
