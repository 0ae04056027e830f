"""Schemathesis over a running web port: requests made of its OpenAPI document, and its answers compared with it."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis.checks import CHECKS

from tests.support.fuzzed_paths import NAMES, ends
from tests.support.fuzzed_requests import prepare

TRUTHFUL = (501, 503, 504, 507)
"""Statuses above 499 that an answer may have."""
OPERATIONS_PER_PREPARE = 8
"""Operations after which what was deleted is made again."""


@dataclass(slots=True)
class Found:
    """Result of a run."""

    requests: int = 0
    statuses: dict[int, int] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)


def bounded(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document with names under which something exists, else most calls would end at a missing tenant.

    Operations whose answers do not end are left out."""
    made = copy.deepcopy(dict(document))
    for path, each in made["paths"].items():
        made["paths"][path] = {method: operation for method, operation in each.items() if ends(operation)}
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
        every: list[Any] = list(schema.get_all_operations())
        for number_of_it, operation in enumerate(each.ok() for each in every[part]):
            if number_of_it % OPERATIONS_PER_PREPARE == 0:
                prepare(url)
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
