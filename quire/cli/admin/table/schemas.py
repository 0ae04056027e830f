"""Schemas."""

from __future__ import annotations

from typing import Final

from quire.cli.admin.errors import CommandLineError
from quire.cli.admin.table.shared import A_TOPIC, FORCE, just
from quire.cli.admin.values import JSON_FILE, number
from quire.cli.admin.verbs import Given, Plan, Verb, VerbGroup, flag, made, option

_BASE: Final = "schemas/{topic.path}"
_FILE: Final = option(
    "--filename",
    "-f",
    kind=JSON_FILE,
    help='A file with {"type":"AVRO","schema":"...","properties":{}}.',
    required=True,
)


def _get(given: Given) -> Plan:
    if given["all_version"] and given["version"] is not None:
        raise CommandLineError("give either --version or --all-version")
    if given["all_version"]:
        return (yield made(f"GET {_BASE}/schemas", given))
    return (yield made(f"GET {_BASE}/schema" + ("" if given["version"] is None else "/{version}"), given))


GROUP: Final = VerbGroup(
    "schemas",
    "Schemas of topics.",
    (
        Verb(
            "get",
            f"GET {_BASE}/schema/{{version}}",
            "Print the newest schema of a topic.",
            (
                A_TOPIC,
                option("--version", "-v", kind=number(0), help="This version."),
                flag("--all-version", "-a", help="All versions."),
            ),
            plan=_get,
        ),
        Verb("metadata", f"GET {_BASE}/metadata", "Print where the schemas of a topic are stored.", (A_TOPIC,)),
        Verb("upload", f"POST {_BASE}/schema", "Add a schema to a topic.", (A_TOPIC, _FILE), body=just("filename")),
        Verb(
            "compatibility",
            f"POST {_BASE}/compatibility",
            "Print whether a schema could be added.",
            (A_TOPIC, _FILE),
            body=just("filename"),
        ),
        Verb(
            "delete",
            f"DELETE {_BASE}/schema?force={{force}}",
            "Delete all schemas of a topic; with --force their ledgers too.",
            (A_TOPIC, FORCE),
            destroys="all schemas of the topic {topic}",
        ),
    ),
)
