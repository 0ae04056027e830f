"""Resource quotas of bundles, and resource groups."""

from __future__ import annotations

from typing import Final

from quire.cli.admin.errors import CommandLineError
from quire.cli.admin.table.shared import A_BUNDLE
from quire.cli.admin.values import DECIMAL, NAMESPACE, SIZE, TEXT, Json, number
from quire.cli.admin.verbs import Given, Plan, Verb, VerbGroup, argument, flag, made, option

_GROUP: Final = argument("group", TEXT, "A resource group.")
_OF: Final = option("--namespace", "-n", kind=NAMESPACE, help="The namespace, with --bundle.")
_PATH: Final = "resource-quotas/{namespace}/{bundle}"
_QUOTA: Final = (
    option("--msg-rate-in", "--msgRateIn", "-mi", kind=DECIMAL, help="Messages in per second.", required=True),
    option("--msg-rate-out", "--msgRateOut", "-mo", kind=DECIMAL, help="Messages out per second.", required=True),
    option("--bandwidth-in", "--bandwidthIn", "-bi", kind=DECIMAL, help="Bytes in per second.", required=True),
    option("--bandwidth-out", "--bandwidthOut", "-bo", kind=DECIMAL, help="Bytes out per second.", required=True),
    option("--memory", "-mem", kind=DECIMAL, help="Megabytes of memory.", required=True),
    flag("--dynamic", "-d", help="Let brokers compute it again."),
)
_RATES: Final = (
    option("--msg-publish-rate", "-mp", kind=number(-1), help="Messages published per second."),
    option("--byte-publish-rate", "-bp", kind=SIZE, help="Bytes published per second."),
    option("--msg-dispatch-rate", "-md", kind=number(-1), help="Messages delivered per second."),
    option("--byte-dispatch-rate", "-bd", kind=SIZE, help="Bytes delivered per second."),
)


def _template(method: str, given: Given) -> str:
    if (given["namespace"] is None) != (given["bundle"] is None):
        raise CommandLineError("--namespace and --bundle belong together: give both, or none for the default quota")
    return f"{method} {'resource-quotas' if given['namespace'] is None else _PATH}"


def _get(given: Given) -> Plan:
    return (yield made(_template("GET", given), given))


def _set(given: Given) -> Plan:
    body = {
        "msgRateIn": given["msg_rate_in"],
        "msgRateOut": given["msg_rate_out"],
        "bandwidthIn": given["bandwidth_in"],
        "bandwidthOut": given["bandwidth_out"],
        "memory": given["memory"],
        "dynamic": given["dynamic"],
    }
    return (yield made(_template("POST", given), given, body))


def _group(given: Given) -> Json:
    names = {
        "publishRateInMsgs": "msg_publish_rate",
        "publishRateInBytes": "byte_publish_rate",
        "dispatchRateInMsgs": "msg_dispatch_rate",
        "dispatchRateInBytes": "byte_dispatch_rate",
    }
    return {key: given[name] for key, name in names.items() if given[name] is not None}


QUOTAS: Final = VerbGroup(
    "resource-quotas",
    "Expected load of bundles.",
    (
        Verb("get", f"GET {_PATH}", "Print the quota of a bundle, or the default.", (_OF, A_BUNDLE), plan=_get),
        Verb("set", f"POST {_PATH}", "Set the quota of a bundle, or the default.", (_OF, A_BUNDLE, *_QUOTA), plan=_set),
        Verb(
            "reset-namespace-bundle-quota",
            f"DELETE {_PATH}",
            "Give a bundle the default quota.",
            (
                option("--namespace", "-n", kind=NAMESPACE, help="The namespace.", required=True),
                option("--bundle", "-b", kind=TEXT, help="The bundle.", required=True),
            ),
        ),
    ),
)
GROUPS: Final = VerbGroup(
    "resourcegroups",
    "Resource groups: limits that namespaces share.",
    (
        Verb("list", "GET resourcegroups", "Print the resource groups."),
        Verb("get", "GET resourcegroups/{group}", "Print a resource group.", (_GROUP,)),
        Verb("create", "PUT resourcegroups/{group}", "Create a resource group.", (_GROUP, *_RATES), body=_group),
        Verb("update", "PUT resourcegroups/{group}", "Change a resource group.", (_GROUP, *_RATES), body=_group),
        Verb(
            "delete",
            "DELETE resourcegroups/{group}",
            "Delete a resource group.",
            (_GROUP,),
            destroys="the resource group {group}",
        ),
    ),
)
