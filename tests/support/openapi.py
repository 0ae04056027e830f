"""Schemathesis over a running web port: requests made of its OpenAPI document, and its answers compared with it."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis.checks import CHECKS

from tests.support.fuzzed_requests import HOSTILE, NAMES

TRUTHFUL = (501, 503, 504, 507)
"""Statuses above 499 that an answer may have."""
HEALTH = "/admin/v2/brokers/health"


@dataclass(slots=True)
class Found:
    """Result of a run."""

    requests: int = 0
    statuses: dict[int, int] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)


def bounded(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document with names under which something exists, else most calls would end at a missing tenant."""
    made = copy.deepcopy(dict(document))
    for each in made["paths"].values():
        for operation in each.values():
            for parameter in operation["parameters"]:
                names = NAMES.get(parameter["name"])
                if parameter["in"] == "path" and names:
                    parameter["schema"] = {"type": "string", "enum": list(names)}
    return made


def run(url: str, document: Mapping[str, Any], *, part: slice, examples: int, number: int) -> Found:
    """Send `examples` requests for each operation of a part of the document. `number`: the seed."""
    schema = schemathesis.openapi.from_dict(bounded(document))
    checks = CHECKS.get_by_names(["status_code_conformance", "content_type_conformance"])
    found = Found()
    with requests.Session() as session:
        for operation in [each.ok() for each in schema.get_all_operations()][part]:
            _try(url, session, operation, checks, found, examples=examples, number=number)
    return found


def _try(
    url: str,
    session: requests.Session,
    operation: Any,
    checks: Sequence[Any],
    found: Found,
    *,
    examples: int,
    number: int,
) -> None:
    @seed(number)
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy())
    def each(case: Any) -> None:
        response = case.call(base_url=url, session=session, timeout=60, allow_redirects=False)
        found.requests += 1
        found.statuses[response.status_code] = found.statuses.get(response.status_code, 0) + 1
        shown = f"{case.method} {case.formatted_path} query={case.query!r} body={case.body!r:.200}"
        if response.status_code >= 500 and response.status_code not in TRUTHFUL:
            found.failures.append(f"{response.status_code} {response.text[:200]}: {shown}")
        try:
            case.validate_response(response, checks=checks)
        except BaseExceptionGroup as failures:
            found.failures += [f"{error}"[:300] + f": {shown}" for error in failures.exceptions]

    each()


def hostile_paths(document: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield method, pattern and path for each operation, each parameter of its path and each hostile part."""
    for pattern, each in document["paths"].items():
        for method, operation in each.items():
            names = [parameter["name"] for parameter in operation["parameters"] if parameter["in"] == "path"]
            for hostile_name in names:
                for hostile in HOSTILE:
                    path = pattern
                    for name in names:
                        value = hostile if name == hostile_name else NAMES.get(name, ("1",))[0]
                        path = path.replace(f"{{{name}}}", value)
                    yield method.upper(), pattern, path
