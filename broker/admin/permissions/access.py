"""Permission of each request, checked before its handler: see broker.security.authorization.routes.

What is refused looks the same whether or not it exists: tenant, namespace and topic are parsed, and nothing is looked
up. The principal of a request is `request.scope["principal"]`, which authentication sets.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from broker.admin.errors import NotAuthorizedError
from broker.admin.requests import AdminCall
from broker.errors import BrokerError
from broker.security.authorization.authorizer import Authorizer
from broker.security.authorization.permissions import OF_TOPIC, Need, Permission, on_topic
from broker.security.authorization.routes import BY_BODY, CallKind, Route, row_of
from broker.security.principal import Principal
from quire.wire.pulsar.names import NamespaceName


def principal_of(request: Request) -> Principal | None:
    """Return the principal of a request; None: it has none."""
    found: Principal | None = request.scope.get("principal")
    return found


async def check_access(call: AdminCall, pattern: str) -> None:
    """Return if a request is permitted, or if nothing is checked.

    Raises NotAuthorizedError; InvalidNameInPathError (a name that is none); ServiceNotReadyError (it cannot be decided
    now)."""
    authorizer = call.service.authorizer
    if authorizer is None:
        return
    row = row_of(call.request.method, pattern)
    if row is None:
        raise NotAuthorizedError(403, f"{pattern} is in no table of permissions")
    if row.permission is Permission.NOTHING:
        return
    if pattern.rpartition("/")[2] in BY_BODY:
        await _require(authorizer, call.request, row, Need(Permission.ANY_ROLE))
    else:
        await _require(authorizer, call.request, row, _need(call, row))


async def check_tenant_admin(call: AdminCall, namespace: NamespaceName, pattern: str) -> None:
    """Check a request whose body names the namespace. Raises as `check_access`."""
    authorizer, row = call.service.authorizer, row_of(call.request.method, pattern)
    if authorizer is None:
        return
    assert row is not None, f"{pattern} has a row"
    need = Need(row.permission, namespace.tenant, str(namespace))
    await _require(authorizer, call.request, row, need)


def _need(call: AdminCall, row: Route) -> Need:
    parts = call.parts
    if "topic" in parts:
        subscription = call.part("subscription") if "subscription" in parts else ""
        name = call.topic()
        if row.permission in OF_TOPIC:
            return on_topic(row.permission, name, subscription)
        return Need(row.permission, name.tenant, name.namespace_path, name)
    if "namespace" in parts:
        namespace = call.namespace()
        return Need(row.permission, namespace.tenant, str(namespace))
    return Need(row.permission, call.tenant() if "tenant" in parts else "")


def super_user_check(authorizer: Authorizer | None) -> Callable[[Request], Awaitable[Response | None]]:
    """Return a check of a resource outside the admin REST and its tables: as `checked_route`, for super users alone."""

    async def check(request: Request) -> Response | None:
        if authorizer is None:
            return None
        try:
            row = Route(Permission.SUPER_USER, CallKind.SUPER_USER)
            await _require(authorizer, request, row, Need(Permission.SUPER_USER))
        except NotAuthorizedError as error:
            return JSONResponse({"reason": str(error)}, status_code=error.status)
        except BrokerError as error:
            return JSONResponse({"reason": str(error)}, status_code=503)
        return None

    return check


async def _require(authorizer: Authorizer, request: Request, row: Route, need: Need) -> None:
    principal = principal_of(request)
    decision = await authorizer.decide(principal, need)
    if not decision.allowed:
        authorizer.note_refusal(need, decision)
        raise NotAuthorizedError(row.status(has_role=principal is not None), decision.reason)


def checked_route(authorizer: Authorizer | None, pattern: str) -> Callable[[Request], Awaitable[Response | None]]:
    """Return a check of a resource that is not one of the admin REST: it returns the refusal, None if the request is
    permitted."""

    async def check(request: Request) -> Response | None:
        if authorizer is None:
            return None
        row = row_of(request.method, pattern)
        try:
            if row is None:
                raise NotAuthorizedError(403, f"{pattern} is in no table of permissions")
            await _require(authorizer, request, row, Need(row.permission))
        except NotAuthorizedError as error:
            return JSONResponse({"reason": str(error)}, status_code=error.status)
        except BrokerError as error:
            return JSONResponse({"reason": str(error)}, status_code=503)
        return None

    return check
