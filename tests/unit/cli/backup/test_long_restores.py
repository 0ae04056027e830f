"""A partition that waits for the others is not given up (`quire.cli.backup.topic_restore`)."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any

from quire.cli.admin.errors import NOT_FOUND, RequestRefusedError
from quire.cli.admin.verbs import Request
from quire.cli.backup.file import END, HEADER, PART, BackupWriter
from quire.cli.backup.topic_restore import TOUCH_S, TopicRestore

ABOUT: dict[str, Any] = {
    "kind": "topic",
    "topic": "persistent://public/default/z",
    "partitions": 2,
    "properties": {},
    "policies": {},
    "schemas": [],
}


class Broker:
    """Sender of a broker without topics. It records its requests."""

    def __init__(self) -> None:
        self.sent: list[str] = []

    def __enter__(self) -> Broker:
        return self

    def __exit__(self, *_: object) -> None: ...

    def send(self, request: Request) -> Any:
        self.sent.append(f"{request.method} {request.path.rpartition('default/')[2]}")
        if request.method == "GET":
            raise RequestRefusedError("there is no such topic", status=NOT_FOUND)
        return {"entries": 0}


def test_every_partition_has_requests_while_others_are_restored(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with BackupWriter(path) as file:
        file.json(HEADER, ABOUT)
        for _ in range(2):
            file.json(PART, {"topic": "a", "entries": 0, "last": "-1:-1", "terminated": False, "properties": {}})
        file.end()
    times = count(0, int(TOUCH_S))
    broker = Broker()
    TopicRestore(broker, path, lambda done, every: None, to=None, clock=lambda: next(times)).run()
    records = [HEADER, PART, PART, END]
    for index in range(2):
        begins = broker.sent.count(f"PUT z-partition-{index}/quireBackup")
        assert begins == 1 + len(records), broker.sent
