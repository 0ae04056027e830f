"""Quotas of backlogs, of a namespace and of a topic.

GET            {namespace}/backlogQuotaMap     {"destination_storage":{"limitSize":N,"limitTime":s,"policy":...}}
POST, DELETE   {namespace}/backlogQuota?backlogQuotaType=destination_storage|message_age
                                               204; 412 an invalid quota, or one above the retention
GET            {topic}/backlogQuotaMap         the same of a topic; with ?applied=true: the effective quotas
POST, DELETE   {topic}/backlogQuota            the same way
GET            brokers/backlog-quota-check     204: all loaded topics of this broker were checked

Source: Pulsar's NamespacesBase.internalSetBacklogQuota, PersistentTopicsBase.internalSetBacklogQuota.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from starlette.responses import Response

from broker.admin.errors import MalformedRequestError, PreconditionError
from broker.admin.life_policies.handlers import change_namespace, change_topic, namespace_policies
from broker.admin.policies import Handlers, check_policy, policy_topic, with_policy
from broker.admin.requests import AdminCall
from broker.admin.resource import answer
from broker.ownership.values import Json
from broker.topics.policy_values import NAMESPACE_RETENTION, retention_of
from broker.topics.quotas.quota import (
    NAMESPACE_QUOTAS,
    STORAGE,
    TOPIC_QUOTAS,
    TYPES,
    backlog_quota,
    effective,
    fits,
    of_broker,
)


def _type(call: AdminCall) -> str:
    kind = call.request.query_params.get("backlogQuotaType") or STORAGE
    if kind not in TYPES:
        raise MalformedRequestError(f"backlogQuotaType must be one of {', '.join(TYPES)}, not {kind[:100]!a}")
    return kind


async def _checked(call: AdminCall, retention: Mapping[str, Any] | None) -> Json:
    value: Json = check_policy(call, backlog_quota, await call.json())
    if not fits(value, retention):
        raise PreconditionError(
            "Backlog Quota exceeds configured retention quota. Please increase retention quota and retry"
        )
    return value


def _with(policies: Json, key: str, kind: str, value: Json | None) -> Json:
    """Return policies with the quota of one type changed; None takes it away."""
    known = policies.get(key)
    return {**policies, key: with_policy(known if isinstance(known, dict) else {}, kind, value)}


async def _get_namespace(call: AdminCall) -> Response:
    return answer((await namespace_policies(call)).get(NAMESPACE_QUOTAS) or {})


async def _post_namespace(call: AdminCall) -> None:
    kind = _type(call)
    value = await _checked(call, (await namespace_policies(call)).get(NAMESPACE_RETENTION))
    await change_namespace(call, lambda policies: _with(policies, NAMESPACE_QUOTAS, kind, value))


async def _delete_namespace(call: AdminCall) -> None:
    kind = _type(call)
    await change_namespace(call, lambda policies: _with(policies, NAMESPACE_QUOTAS, kind, None))


async def _get_topic(call: AdminCall) -> Response:
    name = await policy_topic(call)
    if call.flag("applied"):
        held = await call.cluster.policies.load(name)
        default = of_broker(call.administration.options)
        return answer(effective(default, held.of_namespace, held.of_topic).shown)
    return answer((await call.cluster.policies.get(name) or {}).get(TOPIC_QUOTAS) or {})


async def _post_topic(call: AdminCall) -> None:
    kind = _type(call)
    held = await call.cluster.policies.load(await policy_topic(call))
    value = await _checked(call, retention_of(held()))
    await change_topic(call, lambda policies: _with(policies, TOPIC_QUOTAS, kind, value))


async def _delete_topic(call: AdminCall) -> None:
    kind = _type(call)
    await change_topic(call, lambda policies: _with(policies, TOPIC_QUOTAS, kind, None), only_existing=True)


async def check(call: AdminCall) -> None:
    """Check all loaded topics of this broker, now."""
    await call.administration.check_quotas()


OF_NAMESPACE: Final = Handlers(_get_namespace, _post_namespace, _delete_namespace)
OF_TOPIC: Final = Handlers(_get_topic, _post_topic, _delete_topic)
