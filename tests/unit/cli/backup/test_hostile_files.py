"""A file that is whole, and that `quire admin backup` does not make, restores nothing (`quire.cli.backup`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from quire.cli.admin.errors import CommandLineError
from quire.cli.admin.verbs import Request
from quire.cli.backup import cluster
from quire.cli.backup.file import (
    END,
    HEADER,
    NODE,
    PART,
    SUBSCRIPTION,
    BackupDamagedError,
    BackupReader,
    BackupWriter,
)
from quire.cli.backup.policies import write_policies
from quire.cli.backup.topic_restore import TopicRestore
from tests.support.refusals import refuses


class NotingSender:
    """A sender that notes what it sends."""

    def __init__(self) -> None:
        self.sent: list[Request] = []

    def __enter__(self) -> NotingSender:
        return self

    def __exit__(self, *_: object) -> None: ...

    def send(self, request: Request) -> Any:
        self.sent.append(request)
        return {}


ABOUT: dict[str, Any] = {
    "kind": "topic",
    "topic": "persistent://public/default/a",
    "partitions": 0,
    "properties": {},
    "policies": {},
    "schemas": [],
}


def made(path: Path, parts: int = 1, **header: Any) -> Path:
    with BackupWriter(path) as file:
        file.json(HEADER, {**ABOUT, **header})
        for _ in range(parts):
            file.json(PART, {"topic": "a", "entries": 0, "last": "-1:-1", "terminated": False, "properties": {}})
        file.end()
    return path


def restore(path: Path) -> NotingSender:
    sender = NotingSender()
    refuses(CommandLineError, lambda: TopicRestore(sender, path, lambda done, every: None, to=None).run())
    return sender


@pytest.mark.parametrize(
    "policies",
    [
        {"permissions/thief": ["produce", "consume"]},
        {"../../../../tenants/x": {}},
        {"retention?x": {}},
        {"maxConsumers": 1, "unload": None},
        {"backlogQuotaMap": {"destination_storage&x=1": {}}},
        {"backlogQuotaMap": []},
        ["permissions/thief"],
    ],
)
def test_a_file_grants_no_rights_and_sets_nothing_but_policies(tmp_path: Path, policies: Any) -> None:
    assert not restore(made(tmp_path / "f", policies=policies)).sent
    sender = NotingSender()
    refuses(CommandLineError, lambda: write_policies(sender, "/base", policies))
    assert not sender.sent


@pytest.mark.parametrize(
    ("parts", "header"),
    [
        (1, {"partitions": 2_000_000_000}),
        (0, {}),
        (2, {}),
        (1, {"partitions": "1"}),
        (1, {"partitions": True}),
        (1, {"partitions": -1}),
        (1, {"topic": None}),
        (1, {"topic": "persistent://public/default/../../x"}),
        (1, {"schemas": {}}),
    ],
)
def test_a_file_whose_header_does_not_fit_its_records_is_refused(
    tmp_path: Path, parts: int, header: dict[str, Any]
) -> None:
    assert not restore(made(tmp_path / "f", parts, **header)).sent


@pytest.mark.parametrize(("header", "end"), [(b"[]", b"{}"), (b"{", b"{}"), (b"[" * 100_000, b"{}"), (b"{}", b"[1]")])
def test_records_that_are_no_objects_are_damage(tmp_path: Path, header: bytes, end: bytes) -> None:
    path = tmp_path / "f"
    with BackupWriter(path) as file:
        file.record(HEADER, header)
        file.record(END, end)
        file._ended = True
    with BackupReader(path) as reader:
        refuses(BackupDamagedError, reader.verify)


def test_each_flipped_bit_and_each_cut_of_a_file_is_found(tmp_path: Path) -> None:
    whole = made(tmp_path / "whole").read_bytes()
    path = tmp_path / "damaged"
    for at in range(len(whole)):
        for damaged in (whole[:at], whole[:at] + bytes([whole[at] ^ (1 << at % 8)]) + whole[at + 1 :]):
            path.write_bytes(damaged)
            with BackupReader(path) as file:
                refuses(CommandLineError, file.verify)


def cluster_file(path: Path, *records: tuple[bytes, bytes]) -> Path:
    with BackupWriter(path) as file:
        file.json(HEADER, {"kind": "cluster"})
        for kind, payload in records:
            file.record(kind, payload)
        file.end()
    return path


def node(name: bytes, value: bytes = b"") -> tuple[bytes, bytes]:
    return NODE, len(name).to_bytes(4, "big") + name + value


@pytest.mark.parametrize(
    "records",
    [
        [node(b"ledgers")],
        [node(b"/a/../b")],
        [node(b"/a\xff")],
        [node(b"/zookeeper/config", b"x")],
        [node(b"/quire-restoring", b"x")],
        [(NODE, b"\0")],
        [node(b"/a"), (SUBSCRIPTION, b"[]")],
        [node(b"/a"), (SUBSCRIPTION, b"{")],
        [node(b"/a"), (SUBSCRIPTION, b"[" * 100_000)],
        [node(b"/a"), (SUBSCRIPTION, b'{"/a/-":"7"}')],
        [node(b"/a"), (SUBSCRIPTION, b'{"/a/-":true}')],
        [node(b"/a"), (SUBSCRIPTION, b'{"/a/-":-1}')],
        [node(b"/a"), (SUBSCRIPTION, b'{"/counters/producer-name/-":1000000000000}')],
        [node(b"/a"), (SUBSCRIPTION, b'{"a":7}')],
    ],
)
def test_metadata_that_no_backup_has_are_refused_before_anything_is_written(
    tmp_path: Path, records: list[tuple[bytes, bytes]]
) -> None:
    path = cluster_file(tmp_path / "f", node(b"/admin"), *records)
    data = tmp_path / "data"
    with pytest.raises(CommandLineError, match="makes no such file"):
        cluster.restore(f"standalone:{data}", path, None)
    assert not data.exists()
