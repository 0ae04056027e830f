"""Restoration of a topic from a file, also under another name or on another cluster.

    1. the file is read to its end: nothing is restored from one that is damaged
    2. schemas, of which each must get the version that it had, because messages name it
    3. the topic, or a partitioned topic with all its partitions, is created in one write with the mark of the backup
    4. the entries of each partition, then its subscriptions
    5. policies of the topic
    6. each partition is checked, and then opened to clients, then the partitioned topic

A topic with the mark has no clients, and is deleted as any other. After a kill at any moment the same command
continues: it finds the mark, and as many entries as were stored, of which the last one is compared with the file.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from quire.cli.admin.connection import RequestSender
from quire.cli.admin.errors import NOT_FOUND, AdminCommandError, CommandLineError, RequestRefusedError
from quire.cli.admin.verbs import ABSENT, Request
from quire.cli.backup.file import PART, BackupReader, BackupSummary
from quire.cli.backup.part_restore import PartRestore, patiently
from quire.cli.backup.policies import check_policies, write_policies
from quire.cli.backup.topic_backup import Progress, partition_count, schemas_path, topic_path
from quire.wire.pulsar.errors import InvalidNameError
from quire.wire.pulsar.names import TopicName

TOUCH_S: Final = 600.0
"""Seconds between two requests to every partition: brokers delete one that had none for a long time
(quireAbandonedRestoreSeconds)."""


class TopicRestore:
    """One restoration from one file."""

    def __init__(
        self,
        sender: RequestSender,
        path: Path,
        progress: Progress,
        *,
        to: TopicName | None,
        expire: bool = False,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`to`: name of the topic to make; None: that of the file. `expire`: open it even if its messages are older
        than its message TTL or its backlog quota of age."""
        self._sender = sender
        self._path = path
        self._progress = progress
        self._to = to
        self._expire = expire
        self._sleep = sleep
        self._clock = clock

    def run(self) -> tuple[TopicName, int]:
        """Restore; return the topic and the number of its entries. Raises AdminCommandError; run it again then."""
        with BackupReader(self._path) as file:
            summary = file.verify()
            if summary.header.get("kind") != "topic":
                raise CommandLineError(f"{self._path} is no backup of a topic: `quire admin restore cluster` takes it")
            self._check(summary)
            name = self._to or self._name_in(summary)
            if name.domain != "persistent" or name.partition >= 0:
                raise CommandLineError(f"{name.full}: give a persistent topic, and no single partition of one")
            return name, self._restore(file, summary, name)

    def _check(self, summary: BackupSummary) -> None:
        """Raise CommandLineError for a file that is whole, and that `quire admin backup` does not make."""
        header, parts = summary.header, len(summary.parts)
        wanted = {"topic": str, "partitions": int, "properties": dict, "policies": dict, "schemas": list}
        for name, kind in wanted.items():
            if type(header.get(name)) is not kind or (kind is int and header[name] < 0):
                raise CommandLineError(
                    f"{self._path}: its header has no {name}: `quire admin backup` makes no such file"
                )
        if parts != max(header["partitions"], 1):
            raise CommandLineError(f"{self._path} has {parts} topics, but {header['partitions']} partitions")
        check_policies(header["policies"])

    def _name_in(self, summary: BackupSummary) -> TopicName:
        try:
            return TopicName.parse(summary.header["topic"])
        except InvalidNameError as error:
            raise CommandLineError(f"{self._path}: the topic in its header: {error}") from None

    def _restore(self, file: BackupReader, summary: BackupSummary, name: TopicName) -> int:
        header, base, mark = summary.header, topic_path(name), {"backup": summary.id}
        partitions = header["partitions"]
        opened = self._is_opened(name, partitions, mark)
        self._schemas(name, header["schemas"])
        if partitions:
            node = {**mark, "partitions": partitions, "properties": header["properties"]}
            self._send("PUT", f"{base}/quireBackup", node)
        parts: list[PartRestore] = []
        for index, offset in enumerate(summary.parts):
            target = name.with_partition(index) if partitions else name
            done = opened and not self._status(target)["restoring"]
            facts = file.at(offset).json
            part = PartRestore(
                self._sender, target, facts, mark, self._progress, self._sleep, done=done, expire=self._expire
            )
            part.begin()
            parts.append(part)
        index = -1
        touched_s = self._clock()
        for record in file.records():
            if self._clock() >= touched_s + TOUCH_S:
                touched_s = self._clock()
                for each in parts:
                    each.touch()
            if record.kind == PART:
                if index >= 0:
                    parts[index].finish(file)
                index += 1
            elif index >= 0:
                parts[index].take(record)
        parts[index].finish(file)
        write_policies(self._sender, base, header["policies"])
        for each in parts:
            each.check()
        for each in parts:
            each.open()
        if partitions:
            self._send("POST", f"{base}/quireBackup", {})
        return sum(each.numbers.count for each in parts)

    def _is_opened(self, name: TopicName, partitions: int, mark: dict[str, str]) -> bool:
        """Return whether a run before has made the node of the partitioned topic. Raises CommandLineError if there is
        another topic of the name."""
        base = topic_path(name)
        there = partition_count(self._sender, base)
        if there:
            if there != partitions:
                raise CommandLineError(f"{name.full} exists, with {there} partitions: give another name with --topic")
            self._send("PUT", f"{base}/quireBackup", {**mark, "partitions": partitions})
            return True
        if partitions:
            try:
                self._status(name)
            except RequestRefusedError as error:
                if error.status != NOT_FOUND:
                    raise
            else:
                raise CommandLineError(f"{name.full} exists, without partitions: give another name with --topic")
        return False

    def _schemas(self, name: TopicName, schemas: list[dict[str, Any]]) -> None:
        """Add the schemas that are missing. Raises AdminCommandError if one would get another version."""
        if not schemas:
            return
        path = schemas_path(name)
        try:
            there = self._send("GET", f"{path}/schemas")["getSchemaResponses"]
        except RequestRefusedError as error:
            if error.status != NOT_FOUND:
                raise
            there = []
        for version, each in enumerate(schemas):
            if version < len(there):
                found = there[version]
                if (found["type"], found["data"]) != (each["type"], each["data"]):
                    raise AdminCommandError(f"{name.full} has another schema of version {version}: delete its schemas")
                continue
            body = {"type": each["type"], "schema": each["data"], "properties": each["properties"]}
            made = self._send("POST", f"{path}/schema", body)["version"]["version"]
            if made != version:
                raise AdminCommandError(f"the schema of version {version} got version {made}: delete the schemas first")

    def _status(self, name: TopicName) -> Any:
        return self._send("GET", f"{topic_path(name)}/quireBackup")

    def _send(self, method: str, path: str, body: object = ABSENT) -> Any:
        return patiently(self._sender, Request(method, path, body), self._sleep)
