"""broker.security.authorization.decisions, as a table in testdata/decisions.txt: who may do what."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from broker.security.authorization.config import AuthorizationOptions
from broker.security.authorization.decisions import Facts, RoleRules
from broker.security.authorization.grants import Grants
from broker.security.authorization.permissions import Need, Permission, on_topic
from broker.security.principal import Principal
from quire.wire.pulsar.names import TopicName
from tests.support.datadriven import Line, check


def actions(text: str) -> frozenset[str]:
    return frozenset() if text == "-" else frozenset(text.split(","))


def need_of(line: Line) -> tuple[Principal | None, Need]:
    role, permission = line.word(), Permission[line.word()]
    principal = None if role == "-" else Principal(role, line.option("original", "") or None)
    if not line.words:
        return principal, Need(permission, line.option("tenant", "acme"), "acme/n")
    return principal, on_topic(permission, TopicName.parse(line.word()), line.option("subscription", ""))


def decide(command: Line, steps: Sequence[Line]) -> list[str]:
    options = AuthorizationOptions(
        enabled=True,
        super_users=tuple(filter(None, command.option("super", "").split(","))),
        proxies=tuple(filter(None, command.option("proxies", "").split(","))),
        wildcards=command.option("wildcards", "off") == "on",
    )
    rules = RoleRules(options)
    admins: frozenset[str] = frozenset()
    namespace: dict[str, frozenset[str]] = {}
    topics: dict[str, dict[str, frozenset[str]]] = {}
    subscriptions: dict[str, frozenset[str]] = {}
    is_prefix = False
    output: list[str] = []
    for line in steps:
        match line.name:
            case "admins":
                admins = actions(line.word())
            case "namespace":
                role, granted = line.word(), line.word()
                namespace[role] = actions(granted)
            case "topic":
                full, role, granted = line.word(), line.word(), line.word()
                topics.setdefault(full, {})[role] = actions(granted)
            case "subscription":
                name, listed = line.word(), line.word()
                subscriptions[name] = actions(listed)
            case "mode":
                is_prefix = line.word() == "Prefix"
            case "ask":
                text = line.text.removeprefix("ask ")
                principal, need = need_of(line)
                facts = Facts(admins, Grants(namespace, topics, subscriptions, is_prefix))
                found = rules.decide(principal, need, facts)
                at_once = rules.at_once(principal, need)
                assert at_once is None or at_once.allowed == found.allowed, "facts change nothing"
                output.append(f"{'yes' if found.allowed else 'NO ':3} {text}: {found.reason}")
            case _:
                raise line.unknown()
    return output


def test_every_principal_may_do_what_the_table_says() -> None:
    check(Path(__file__).parent / "testdata" / "decisions.txt", decide)
