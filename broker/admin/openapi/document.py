"""The document: OpenAPI 3.1 of a list of routes (pure).

Everything in it comes from what serves: paths and methods from the routes, parameters, bodies and most errors from the
code of their handlers (`reach`), permissions from the table that is obeyed. Errors of methods, which are not followed,
are those that any call with such a path can have (`_usual`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, Final

from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute

from broker.admin.errors import STATUSES, AdminError, NotAuthorizedError, Statuses
from broker.admin.openapi.reach import Reached, function_of, reached
from broker.admin.resource import AcceptedAnswer, Empty, NoContent, Resource
from broker.security.authorization.permissions import Permission
from broker.security.authorization.routes import Route as Row
from broker.security.authorization.routes import row_of
from quire.service.routes import OwnRoute
from quire.service.web.parameters import PathNumber
from quire.wire.pulsar.names import DOMAINS, ENTITY_PATTERN, NAME_SIZE_MAX

Json = dict[str, Any]

_PARAMETER: Final = re.compile(r"\{([a-z_]+)\}")
_ENTITY: Final[Json] = {"type": "string", "pattern": f"^{ENTITY_PATTERN}$", "not": {"enum": [".", ".."]}}
_NAMES: Final[Mapping[str, Json]] = MappingProxyType(
    {"tenant": _ENTITY, "namespace": _ENTITY, "cluster": _ENTITY, "domain": {"type": "string", "enum": list(DOMAINS)}}
)
_ANY_NAME: Final[Json] = {"type": "string", "minLength": 1, "maxLength": NAME_SIZE_MAX}
_READING: Final = ("GET", "HEAD")
_AT_OWNER: Final = frozenset(("topic", "bundle", "broker", "coordinator", "most"))
"""Parameters of paths that are served by the owner of something; other brokers redirect to it."""
_VERBS: Final = MappingProxyType({"GET": "Return", "PUT": "Set", "POST": "Change", "DELETE": "Delete"})
_MEANINGS: Final = MappingProxyType(
    {
        307: "Another broker serves this; its address is in Location.",
        400: "A parameter or the body cannot be read.",
        401: "No valid credentials, or the role may not do this.",
        403: "The role may not do this, or the request names something that this cluster does not have.",
        404: "There is no such thing.",
        405: "It cannot be done with this kind of topic, or the configuration forbids it.",
        406: "The number cannot be accepted.",
        409: "It exists, is in use, or is being changed.",
        412: "A name or value is invalid, or something is in use.",
        413: "The body is too large.",
        415: "The body is not declared as JSON.",
        422: "The value is invalid.",
        500: "The check failed; the reason says how.",
        501: "Not supported.",
        503: "Not now: retry.",
        504: "Not done within the deadline: retry.",
        507: "The disk is full.",
    }
)
_SECURITY: Final[Json] = {
    "token": {"type": "http", "scheme": "bearer", "description": "A signed token (JWT)."},
    "password": {"type": "http", "scheme": "basic", "description": "A name and a password."},
    "certificate": {"type": "mutualTLS", "description": "A certificate of the client, at the port with TLS."},
}
_OPEN: Final = frozenset(("/status.html", "/metrics"))
"""Paths that need no credentials; /metrics does if authenticateMetricsEndpoint is true."""


def document(version: str, operations: Sequence[tuple[str, str, Json]]) -> Json:
    """Return the document. `version`: of the server; `operations`: see there."""
    paths: dict[str, Json] = {}
    for pattern, method, operation in operations:
        paths.setdefault(pattern, {})[method.lower()] = operation
    used = {int(status) for _, _, operation in operations for status in operation["responses"]}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Quire",
            "version": version,
            "description": "The web port of a broker. A HEAD is answered as its GET, without the body.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [{}, *({name: []} for name in _SECURITY)],
        "paths": paths,
        "components": {
            "securitySchemes": _SECURITY,
            "schemas": {
                "Reason": {"type": "object", "properties": {"reason": {"type": "string"}}, "required": ["reason"]}
            },
            "responses": {str(status): _failure(status) for status in sorted(used & _MEANINGS.keys())},
        },
    }


def operations(routes: Sequence[BaseRoute]) -> Iterator[tuple[str, str, Json]]:
    """Yield the path, method and description of each operation. Routes of other classes are resources without a
    meaning of their own."""
    for route in routes:
        if isinstance(route, Resource):
            for method, handler in route.handlers.items():
                if method != "HEAD":
                    yield route.pattern, method, _operation(route.pattern, method, handler, route.statuses.get(method))
        elif isinstance(route, OwnRoute):
            for method, own in route.handlers.items():
                yield route.path, method, _own(route, method, own)


def _operation(pattern: str, method: str, handler: object, special: Statuses | None) -> Json:
    found, row = reached(handler), row_of(method, pattern)
    names = _PARAMETER.findall(pattern)
    statuses = {
        *_usual(method, names, found),
        *_of_errors(found, special or {}),
        *(() if row is None else _of_permission(row)),
    }
    return _described(pattern, method, handler, found, row, statuses)


def _own(route: OwnRoute, method: str, handler: object) -> Json:
    found, row = reached(handler), row_of(method, route.path)
    statuses = {*route.failures.get(method, ()), *(() if row is None else _of_permission(row))}
    if route.path not in _OPEN:
        statuses |= {401}
    described = _described(route.path, method, handler, found, row, statuses)
    return {**described, **({"security": [{}]} if route.path in _OPEN else {})}


def _described(pattern: str, method: str, handler: object, found: Reached, row: Row | None, statuses: set[int]) -> Json:
    names = _PARAMETER.findall(pattern)
    described: Json = {
        "operationId": "_".join([method.lower(), *re.findall(r"\w+", pattern.removeprefix("/admin/v2"))]),
        "summary": _summary(pattern, method, handler),
        "tags": [_tag(pattern)],
        "parameters": [
            *({"name": name, "in": "path", "required": True, **_of_path(name, found)} for name in names),
            *(_of_query(each) for each in found.parameters.values() if each.place == "query"),
        ],
        "responses": {
            **_successes(method, handler),
            **{str(status): {"$ref": f"#/components/responses/{status}"} for status in sorted(statuses)},
        },
    }
    if found.has_body:
        described["requestBody"] = {"content": {"application/json": {"schema": found.body_schema()}}}
    if row is not None:
        described["x-permission"] = row.permission.value
    return described


def _summary(pattern: str, method: str, handler: object) -> str:
    """Return the first sentence of the docstring of a handler, or else one of the path."""
    doc = function_of(handler).__doc__
    if doc:
        return " ".join(doc.split("\n\n")[0].split()).partition(". ")[0].rstrip(".") + "."
    literal = [part for part in pattern.split("/") if part and not part.startswith("{")]
    of = _PARAMETER.findall(pattern)
    return f"{_VERBS[method]} {literal[-1]}{f' of a {of[-1]}' if of else ''}."


def _tag(pattern: str) -> str:
    parts = pattern.split("/")
    return parts[3] if parts[1] == "admin" and len(parts) > 3 else parts[1]


def _of_path(name: str, found: Reached) -> Json:
    known = found.parameters.get(name)
    if isinstance(known, PathNumber):
        return {"description": known.about, "schema": known.schema()}
    return {"schema": _NAMES.get(name, _ANY_NAME)}


def _of_query(parameter: Any) -> Json:
    needed = {"required": True} if getattr(parameter, "needed", False) else {}
    return {
        "name": parameter.name,
        "in": "query",
        "description": parameter.about,
        **needed,
        "schema": parameter.schema(),
    }


def _usual(method: str, names: Sequence[str], found: Reached) -> set[int]:
    """Return the statuses that any call with such parts can be answered with."""
    statuses = {401, 503, 504}
    if names:
        statuses |= {404, 412}
    if found.parameters:
        statuses |= {400}
    if found.has_body:
        statuses |= {400, 413, 415}
    if found.needs_cluster:
        statuses |= {501}
    if "topic" in names:
        statuses |= {405}
    if _AT_OWNER & set(names):
        statuses |= {307}
    if method not in _READING:
        statuses |= {409, 412, 507}
    return statuses


def _of_errors(found: Reached, special: Statuses) -> Iterator[int]:
    for error in found.errors:
        if issubclass(error, NotAuthorizedError):
            continue  # the row of the call has its statuses
        if issubclass(error, AdminError):
            if error is not AdminError:
                yield error.status
            continue
        for statuses in (special, STATUSES):
            status = next((statuses[each] for each in error.__mro__ if each in statuses), None)
            if status is not None:
                yield status
                break
    yield from special.values()


def _of_permission(row: Row) -> Iterator[int]:
    if row.permission is not Permission.NOTHING:
        yield row.status(has_role=True)
        yield row.status(has_role=False)


def _successes(method: str, handler: object) -> Json:
    """Return the answers to a request that succeeds, by the types that the handler returns."""
    function, found = function_of(handler), dict[str, Json]()
    for name in str(function.__annotations__["return"]).split(" | "):
        made = None if name == "None" else function.__globals__[name]
        assert made is None or issubclass(made, Response), f"{function} returns a response"
        if made is NoContent or (made is None and method not in _READING):
            found["204"] = {"description": "Done."}
        elif made is None or made is Empty:
            # A client cannot know whether there is a body: so no content is promised.
            found["200"] = {"description": "No body, or the answer." if found.get("200") else "Done: no body."}
        else:
            status = str(int(HTTPStatus.ACCEPTED if issubclass(made, AcceptedAnswer) else HTTPStatus.OK))
            kind = (made.media_type or JSONResponse.media_type).partition(";")[0]
            found.setdefault(status, {"description": "The answer.", "content": {}})["content"][kind] = {}
    return found


def _failure(status: int) -> Json:
    found: Json = {"description": _MEANINGS[status]}
    if status != HTTPStatus.TEMPORARY_REDIRECT:
        found["content"] = {"application/json": {"schema": {"$ref": "#/components/schemas/Reason"}}}
    else:
        found["headers"] = {"Location": {"schema": {"type": "string"}, "required": True}}
    return found
