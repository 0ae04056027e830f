"""Remedies for refused requests (pure): each error of `quire admin` says what to do next."""

from __future__ import annotations

from typing import Final

from quire.cli.admin.verbs import Request

_LISTS: Final = (
    ("/admin/v2/tenants/", "`quire admin tenants list` has the tenants"),
    ("/admin/v2/clusters/", "`quire admin clusters list` has the clusters"),
    ("/admin/v2/brokers/", "`quire admin brokers list` has the brokers, `list-dynamic-config` the keys"),
    ("/admin/v2/bookies/", "`quire admin bookies list-bookies` has the bookies"),
    ("/admin/v2/resourcegroups/", "`quire admin resourcegroups list` has the groups"),
    ("/admin/v3/transactions/", "`quire admin transactions coordinators-list` has the coordinators"),
    ("/admin/v2/schemas/", "`quire admin topics list TENANT/NAMESPACE` has the topics; `schemas upload` adds a schema"),
    ("/admin/v2/namespaces/", "`quire admin namespaces list TENANT` has the namespaces"),
)
_REMEDIES: Final = {
    400: "Correct the value",
    403: "The role needs a permission: an administrator gives it with `grant-permission`; docs/security.md lists them",
    405: "This kind of topic cannot do that: `topics get-partitioned-topic-metadata` shows whether it is partitioned; "
    "a --force that is forbidden is allowed by a key of broker.conf",
    406: "Give another number",
    409: "It exists, is in use, or is being changed: use the verb that updates it, or try again",
    412: "Change what the reason names, or give --force where the verb has it",
    413: "Make the body smaller: 64 KiB are the limit",
    415: "The server takes another type of body: is it a Pulsar or Quire broker?",
    422: "Correct the value",
    500: "The log of the broker has the cause; try again",
    501: "This broker does not support it: docs/unsupported.md",
    502: "A proxy could not reach the broker; try again",
    503: "The broker cannot do it now; try again",
    504: "It took too long, and may still be done: look, then try again",
    507: "Free space on the disks of the bookies",
}


def remedy(status: int, request: Request, *, anonymous: bool) -> str:
    """Return a sentence: what to do about a status. `anonymous`: the request had no credentials."""
    if status == 401 and anonymous:
        return "Give credentials: --auth-plugin and --auth-params, or a context that has a file with them."
    if status == 401:
        return "The broker does not take these credentials: they may have expired; its log has the reason."
    if status == 404:
        return f"{_list(request.path)}."
    return f"{_REMEDIES.get(status, 'The log of the broker may have the cause')}."


def _list(path: str) -> str:
    for prefix, text in _LISTS:
        if path.startswith(prefix):
            return text
    if "/subscription/" in path:
        return "`quire admin topics subscriptions TOPIC` has the subscriptions, `topics list` the topics"
    return "`quire admin topics list TENANT/NAMESPACE` has the topics; a partitioned one has `partitioned-` verbs"
