"""Policies of a topic as they are in a backup: by resource, as the REST answers them."""

from __future__ import annotations

from typing import Any, Final

from quire.cli.admin.connection import RequestSender
from quire.cli.admin.errors import NOT_FOUND, CommandLineError, RequestRefusedError
from quire.cli.admin.verbs import Request

_POSTED: Final = (
    "persistence",
    "retention",
    "deduplicationEnabled",
    "deduplicationSnapshotInterval",
    "delayedDelivery",
    "messageTTL",
    "maxProducers",
    "maxConsumers",
    "maxMessageSize",
    "maxSubscriptionsPerTopic",
    "maxConsumersPerSubscription",
    "maxUnackedMessagesOnConsumer",
    "maxUnackedMessagesOnSubscription",
    "subscriptionExpirationTime",
    "compactionThreshold",
    "dispatchRate",
    "subscriptionDispatchRate",
    "replicatorDispatchRate",
    "publishRate",
    "subscribeRate",
    "inactiveTopicPolicies",
    "autoSubscriptionCreation",
    "subscriptionTypesEnabled",
    "entryFilters",
    "dispatcherPauseOnAckStatePersistent",
    "schemaValidationEnforced",
)
_QUOTAS: Final = "backlogQuotaMap"
_QUOTA_KINDS: Final = ("destination_storage", "message_age")
_STRATEGY: Final = "schemaCompatibilityStrategy"


def read_policies(sender: RequestSender, base: str) -> dict[str, Any]:
    """Return the policies that a topic itself has, by resource. `base`: its path. Raises AdminCommandError.

    Those that are false are left out, since they are answered like those that are not set."""
    found: dict[str, Any] = {}
    for resource in (*_POSTED, _QUOTAS, _STRATEGY):
        try:
            value = sender.send(Request("GET", f"{base}/{resource}"))
        except RequestRefusedError as error:
            if error.status == NOT_FOUND:  # policies of topics are off
                return {}
            raise
        if value is not None and value is not False and value not in ({}, [], "UNDEFINED"):  # (0 is a value)
            found[resource] = value
    return found


def check_policies(policies: Any) -> None:
    """Raise CommandLineError if what a file has is not as `read_policies` returns it."""
    if not isinstance(policies, dict) or not isinstance(quotas := policies.get(_QUOTAS, {}), dict):
        raise CommandLineError("the policies in the file are no object: it was not made by `quire admin backup`")
    strange = [each for each in policies if each not in (*_POSTED, _QUOTAS, _STRATEGY)]
    strange += [each for each in quotas if each not in _QUOTA_KINDS]
    if strange:
        raise CommandLineError(
            f"the file has {strange[0][:100]!a} among the policies of the topic, which is none: use a newer quire, or "
            "do not trust the file"
        )


def write_policies(sender: RequestSender, base: str, policies: dict[str, Any]) -> None:
    """Set the policies of a topic. Raises AdminCommandError.

    They come from a file: a name that is none of a policy could be any other resource of the topic, such as a
    permission."""
    check_policies(policies)
    for resource, value in policies.items():
        if resource == _QUOTAS:
            for kind, quota in value.items():
                sender.send(Request("POST", f"{base}/backlogQuota?backlogQuotaType={kind}", quota))
        else:
            sender.send(Request("PUT" if resource == _STRATEGY else "POST", f"{base}/{resource}", value))
