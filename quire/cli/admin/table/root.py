"""Verbs of `quire admin` itself, which pulsar-admin does not have."""

from __future__ import annotations

from typing import Final

from quire.cli.admin.differences import differences
from quire.cli.admin.errors import DIFFERENT, DONE
from quire.cli.admin.table.shared import A_TOPIC
from quire.cli.admin.values import NAMESPACE, TEXT
from quire.cli.admin.verbs import Given, Outcome, Plan, Verb, VerbGroup, argument, flag, made, option


def _explain(given: Given) -> Plan:
    part = "" if given["subscription"] is None else "/subscription/{subscription}"
    return (yield made(f"GET {{topic}}{part}/explain", given))


def _diff(given: Given) -> Plan:
    policies = []
    for side in ("first", "second"):
        policies.append((yield made(f"GET namespaces/{{{side}}}", given)))
    found = differences(*policies)
    answer = {"first": str(given["first"]), "second": str(given["second"]), "differences": found}
    return Outcome(answer, DIFFERENT if found and given["exit_code"] else DONE)


EXPLAIN: Final = Verb(
    "explain",
    "GET {topic}/explain",
    "Print why nothing is delivered, why producers wait, and what keeps ledgers, each with the remedy.",
    (A_TOPIC, option("--subscription", "-s", kind=TEXT, help="Explain this subscription alone.")),
    plan=_explain,
    renderer="explain",
)
DIFF: Final = Verb(
    "diff",
    "GET namespaces/{first}",
    "Print the policies in which two namespaces differ.",
    (
        argument("first", NAMESPACE, "A namespace, as tenant/namespace."),
        argument("second", NAMESPACE, "Another one."),
        flag("--exit-code", help="End with 4 if they differ."),
    ),
    plan=_diff,
    renderer="differences",
)
GROUP: Final = VerbGroup("admin", "Questions to a whole cluster.", (EXPLAIN, DIFF))
