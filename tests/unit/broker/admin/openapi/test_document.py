"""broker.admin.openapi: the document is made of what is served, and of nothing else."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import openapi_spec_validator
import pytest
from starlette.responses import Response

from broker.admin.openapi.document import document, operations
from broker.admin.openapi.served import PATH
from broker.admin.requests import AdminCall
from broker.admin.resource import NotServed, Resource
from broker.admin.resource import answer as json_answer
from broker.errors import InvalidSchemaError
from broker.security.authorization.routes import ROUTES
from quire.service.http import Health, make_app
from quire.service.metrics import Metrics
from quire.service.routes import OwnRoute
from quire.service.web.parameters import Flag, PathNumber
from quire.service.web.shapes import Listing, Text
from tests.support.effort import effort
from tests.unit.broker.admin.cluster_fakes import ClusterRest, on_cluster

ROOT = Path(__file__).resolve().parents[5]
TOPIC = "/admin/v2/persistent/{tenant}/{namespace}/{topic}"


@pytest.fixture
async def rest() -> AsyncIterator[ClusterRest]:
    async with on_cluster() as rest:
        yield rest


@pytest.fixture
async def served(rest: ClusterRest) -> dict[str, Any]:
    response = await rest.ask("GET", PATH)
    assert (response.status_code, response.headers["content-type"]) == (200, "application/json")
    found: dict[str, Any] = response.json()
    return found


def in_document(found: dict[str, Any]) -> set[tuple[str, str]]:
    return {(method.upper(), path) for path, each in found["paths"].items() for method in each}


def statuses(operation: dict[str, Any]) -> set[int]:
    return {int(status) for status in operation["responses"]}


async def test_each_route_is_an_operation_and_each_operation_a_route(served: dict[str, Any]) -> None:
    """Rows of permissions are compared with routes in tests/unit/broker/security/test_tables.py."""
    assert in_document(served) == {*ROUTES, ("GET", "/status.html"), ("GET", "/metrics")}


async def test_the_document_is_valid(served: dict[str, Any]) -> None:
    """All of it in long runs, every eighth path in short ones: the library takes 20 ms for each operation."""
    served["paths"] = dict(list(served["paths"].items())[:: effort(quick=8, full=1)])
    openapi_spec_validator.validate(served, cls=openapi_spec_validator.OpenAPIV31SpecValidator)


async def test_each_operation_has_an_id_of_its_own_and_a_sentence(served: dict[str, Any]) -> None:
    every = [operation for each in served["paths"].values() for operation in each.values()]
    assert len({each["operationId"] for each in every}) == len(every)
    assert [each["operationId"] for each in every if not re.fullmatch(r"[A-Z].*\.", each["summary"])] == []


NUMBER = PathNumber("number", "Number of the thing.", 3, 9)
HARD = Flag("hard", "Do it hard.")
NAMES = Listing(Text(1))


async def change(call: AdminCall) -> Response | None:
    """Change a thing. It is not a real one."""
    return await _changed(call)


async def _changed(call: AdminCall) -> Response | None:
    number, hard = call.number(NUMBER), call.flag(HARD)
    names = NAMES.check(await call.json(), "names", InvalidSchemaError)
    return json_answer([number, hard, names])


async def test_what_the_functions_of_a_new_route_take_is_in_the_document(rest: ClusterRest) -> None:
    route = Resource("/admin/v2/things/{number}/{name}", rest.service, POST=change)
    [(path, method, operation)] = operations([route, NotServed("/admin/")])
    assert (path, method) == ("/admin/v2/things/{number}/{name}", "POST")
    assert operation["summary"] == "Change a thing."
    number, name, hard = operation["parameters"]
    assert (number["in"], number["schema"]) == ("path", {"type": "integer", "minimum": 3, "maximum": 9})
    assert (name["in"], name["schema"]["type"]) == ("path", "string")
    assert (hard["name"], hard["in"], hard["schema"]["type"]) == ("hard", "query", "boolean")
    [kind] = operation["requestBody"]["content"].values()
    assert kind["schema"] == {"type": "array", "items": {"type": "string", "minLength": 1}}
    assert {200, 204, 400, 413, 422} <= statuses(operation), "422 is of the error that the body raises"
    assert 202 not in statuses(operation)


async def test_a_handler_behind_a_guard_a_closure_or_an_import_is_found(served: dict[str, Any]) -> None:
    paths = served["paths"]
    [level] = paths["/quire/loggers"]["put"]["parameters"]
    assert level["name"] == "level"
    ttl = paths[f"{TOPIC}/maxProducers"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert ttl == {"type": "integer", "minimum": -(2**31 - 1), "maximum": 2**31 - 1}
    slow = paths["/admin/v3/transactions/slowTransactions/{timeout}"]["get"]["parameters"]
    assert [
        (each["name"], each["schema"]["type"]) for each in slow if each["name"] in ("timeout", "coordinatorId")
    ] == [
        ("timeout", "integer"),
        ("coordinatorId", "integer"),
    ]


async def test_reading_a_policy_takes_no_body(served: dict[str, Any]) -> None:
    bodies = {
        (path, method) for path, each in served["paths"].items() for method in each if "requestBody" in each[method]
    }
    assert {method for _, method in bodies} == {"put", "post"}


async def test_an_operation_names_its_permission_and_the_statuses_of_a_refusal(served: dict[str, Any]) -> None:
    for (method, path), row in ROUTES.items():
        operation = served["paths"][path][method.lower()]
        assert operation["x-permission"] == row.permission.value
        if row.permission.value != "-":
            assert {row.status(has_role=True), row.status(has_role=False)} <= statuses(operation), path


async def test_what_needs_no_credentials_says_so(served: dict[str, Any]) -> None:
    is_open = {path for path, each in served["paths"].items() if each.get("get", {}).get("security") == [{}]}
    assert is_open == {"/status.html", "/metrics"}
    assert set(served["components"]["securitySchemes"]) == {"token", "password", "certificate"}


def test_no_handler_reads_a_query_but_by_its_parameters() -> None:
    """One that did would take what the document does not have."""
    reading = {
        str(path.relative_to(ROOT))
        for folder in ("broker/admin", "broker/explain")
        for path in (ROOT / folder).rglob("*.py")
        if "query_params" in path.read_text()
    }
    assert reading == {"broker/admin/requests.py"}


async def no_check() -> None: ...


def test_a_route_of_the_web_port_itself_has_its_failures() -> None:
    app = make_app(Metrics(), Health(is_ready=lambda: True, check=no_check))
    assert all(isinstance(each, OwnRoute) for each in app.routes)
    found = document("1", list(operations(app.routes)))
    assert statuses(found["paths"]["/admin/v2/brokers/health"]["get"]) >= {200, 401, 500}
