"""A broker of tests that records requests and gives prepared answers."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar

import pytest

from quire.cli.admin import running
from quire.cli.admin.connection import Target
from quire.cli.admin.verbs import ABSENT, JSON_TYPE, Request

E = TypeVar("E", bound=BaseException)
ANSWERS: dict[str, Any] = {
    "/admin/v2/clusters": ["c1", "c2"],
    "/admin/v2/tenants": ["t", "u"],
    "/admin/v2/tenants/t": {"adminRoles": ["root"], "allowedClusters": ["c1"]},
    "/admin/v2/namespaces/t": ["t/n"],
    "/admin/v2/namespaces/u": ["u/n"],
    "/admin/v2/namespaces/t/n/replication": ["c1"],
    "/admin/v2/namespaces/u/n/replication": ["c2"],
    "/admin/v2/namespaces/t/n": {"retention_policies": {"retentionTimeInMinutes": 5}},
    "/admin/v2/persistent/t/n/x/partitions": {"partitions": 2},
    "/lookup/v2/topic/persistent/t/n/x-partition-0": {"brokerUrl": "pulsar://a"},
    "/lookup/v2/topic/persistent/t/n/x-partition-1": {"brokerUrl": "pulsar://a"},
}


class Recorder:
    """Connection that makes no request."""

    def __init__(self) -> None:
        self.target = Target()
        self.requests: list[Request] = []
        self.answers = dict(ANSWERS)

    def open(self, target: Target) -> Recorder:
        self.target = target
        return self

    def __enter__(self) -> Recorder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def send(self, request: Request) -> Any:
        self.requests.append(request)
        path = request.path.partition("?")[0]
        if request.method != "GET":
            return None
        is_list = (path.count("/") == 5 and "persistent/" in path) or path.endswith("/partitioned")
        return self.answers.get(path, [] if is_list else None)


def recorded(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    """Replace the connection of commands, and the time; no file of contexts is read."""
    found = Recorder()
    monkeypatch.setattr(running, "open_connection", found.open)
    monkeypatch.setattr("time.time_ns", lambda: 1_000_000_000_000_000_000)
    monkeypatch.setenv("XDG_CONFIG_HOME", "/nonexistent")
    monkeypatch.delenv("QUIRE_CONTEXT", raising=False)
    return found


def error_of(kind: type[E], call: Callable[[], object]) -> E:
    """Return the error that a call must raise."""
    with pytest.raises(kind) as caught:
        call()
    return caught.value


def shown(request: Request) -> str:
    """Return a request as one line."""
    body = "" if request.body is ABSENT else f" {json.dumps(request.body)}"
    kind = "" if request.content_type == JSON_TYPE else f" as {request.content_type}"
    return f"{request.method} {request.path}{body}{kind}"
