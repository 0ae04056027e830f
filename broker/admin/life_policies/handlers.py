"""Handlers of policies that are one value: what a namespace or a topic says, and what holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from starlette.responses import Response

from broker.admin.policies import Checked, Handlers, Shown, check_policy, policy_topic, with_policy
from broker.admin.requests import AdminCall
from broker.admin.resource import answer
from broker.ownership.values import Json

Change = Callable[[Json], Json]


async def change_namespace(call: AdminCall, change: Change) -> None:
    """Change the policies of the namespace of the path."""
    await call.cluster.namespaces.update_policies(call.namespace(), change)


async def change_topic(call: AdminCall, change: Change, *, only_existing: bool = False) -> None:
    """Change the policies of the topic of the path. `only_existing`: not if it has none."""
    name = await policy_topic(call)
    if not only_existing or await call.cluster.policies.get(name) is not None:
        await call.cluster.policies.update(name, change)


async def namespace_policies(call: AdminCall) -> Json:
    """Return the policies of the namespace of the path."""
    found: Json = await call.cluster.namespaces.policies(call.namespace())
    return found


def of_namespace(key: str, checked: Checked, unset: object = None) -> Handlers:
    """Return the handlers of a policy of namespaces. `unset`: the answer where none is set; None: 204."""

    async def get(call: AdminCall) -> Response | None:
        found = (await namespace_policies(call)).get(key, unset)
        return None if found is None else answer(found)

    async def post(call: AdminCall) -> None:
        value = check_policy(call, checked, await call.json())
        await change_namespace(call, lambda policies: with_policy(policies, key, value))

    async def delete(call: AdminCall) -> None:
        await change_namespace(call, lambda policies: with_policy(policies, key, None))

    return Handlers(get, post, delete)


def of_topic(key: str, checked: Checked, shown: Shown) -> Handlers:
    """Return the handlers of a policy of topics. `shown`: what holds, for ?applied=true."""

    async def get(call: AdminCall) -> Response | None:
        name = await policy_topic(call)
        if call.flag("applied"):
            held: Any = shown(call, await call.cluster.policies.load(name))
            return None if held is None else answer(held)
        found = (await call.cluster.policies.get(name) or {}).get(key)
        return None if found is None else answer(found)

    async def post(call: AdminCall) -> None:
        value = check_policy(call, checked, await call.json())
        await change_topic(call, lambda policies: with_policy(policies, key, value))

    async def delete(call: AdminCall) -> None:
        await change_topic(call, lambda policies: with_policy(policies, key, None), only_existing=True)

    return Handlers(get, post, delete)
