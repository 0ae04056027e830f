"""The tables of permissions as text, for docs/security.md (pure)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from broker.security.authorization.commands import COMMANDS
from broker.security.authorization.permissions import Permission
from broker.security.authorization.routes import ROUTES, CallKind
from quire.wire.pulsar import PulsarApi_pb2 as pb

BEGIN: Final = "<!-- permissions: written by scripts/configuration -->\n"
END: Final = "<!-- end of permissions -->\n"


def with_permissions(page: str) -> str:
    """Return the page with the current tables between its two marks."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    assert begin, "the page has the first mark"
    assert end, "the page has the second mark"
    return f"{before}{BEGIN}\n{permissions()}\n{END}{after}"


def permissions() -> str:
    """Return both tables."""
    return "".join(f"{line}\n" for line in [*_commands(), "", *_calls()])


def _commands() -> Iterator[str]:
    yield "| command | permission | |"
    yield "|---|---|---|"
    for kind, row in COMMANDS.items():
        both = row.permission.value if row.also is None else f"{row.permission.value}; {row.also.value}"
        yield f"| {pb.BaseCommand.Type.Name(kind)} | {both} | {row.note} |"


def _calls() -> Iterator[str]:
    yield "| permission | no role, not permitted | calls |"
    yield "|---|---|---|"
    methods: dict[tuple[Permission, CallKind], dict[str, list[str]]] = {}
    for (method, pattern), route in ROUTES.items():
        methods.setdefault((route.permission, route.kind), {}).setdefault(pattern, []).append(method)
    for (permission, kind), patterns in methods.items():
        calls = ", ".join(f"{' '.join(each)} `{pattern}`" for pattern, each in patterns.items())
        statuses = "-" if kind is CallKind.OPEN else f"{kind.value[1]}, {kind.value[2]}"
        yield f"| {permission.value} | {statuses} | {calls} |"
