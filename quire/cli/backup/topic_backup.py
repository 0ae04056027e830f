"""Backup of a topic, or of all partitions of a partitioned one, while it is served.

The places of the subscriptions are read first and the end of the topic after them, then the entries up to that end. So
no subscription is ahead of the entries of the file, and what is acknowledged or published meanwhile is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from struct import Struct
from typing import Any, Final
from urllib.parse import quote

from quire.cli.admin.connection import RequestSender
from quire.cli.admin.errors import NOT_FOUND, AdminCommandError, CommandLineError, RequestRefusedError
from quire.cli.admin.verbs import ROOT, Request
from quire.cli.backup.file import HEADER, PART, SUBSCRIPTION, BackupWriter
from quire.cli.backup.policies import read_policies
from quire.wire.pulsar.names import TopicName

PLACED: Final = Struct("!qqI")
"""Ledger id, entry id and size before an entry in an answer of the REST."""
_NONE: Final = -1
Progress = Callable[[int, int], None]
"""Called with the entries done and those of the topic or partition."""


def topic_path(name: TopicName) -> str:
    """Return the path of a topic in the REST."""
    return f"{ROOT}{name.domain}/{name.namespace_path}/{quote(name.local, safe='')}"


def schemas_path(name: TopicName) -> str:
    """Return the path of the schemas of a topic."""
    return f"{ROOT}schemas/{name.namespace_path}/{quote(name.local, safe='')}"


def position(text: str) -> tuple[int, int]:
    """Return the two numbers of a position.

    >>> position("3:-1")
    (3, -1)
    """
    ledger_id, _, entry_id = text.partition(":")
    return int(ledger_id), int(entry_id)


def partition_count(sender: RequestSender, base: str) -> int:
    """Return the number of partitions of a topic; 0: it has none, or does not exist. Raises AdminCommandError."""
    try:
        found: int = sender.send(Request("GET", f"{base}/partitions")).get("partitions", 0)
    except RequestRefusedError as error:
        if error.status == NOT_FOUND:
            return 0
        raise
    return found


class TopicBackup:
    """One backup of one topic."""

    def __init__(self, sender: RequestSender, name: TopicName, progress: Progress) -> None:
        self._sender = sender
        self._name = name
        self._progress = progress

    def write(self, path: Path, header: dict[str, Any]) -> int:
        """Write the file; return the number of entries. Raises AdminCommandError, and then there is no file.

        `header`: what the first record has beside the topic."""
        if self._name.domain != "persistent" or self._name.partition >= 0:
            raise CommandLineError(f"{self._name.full}: give a persistent topic, and no single partition of one")
        base = topic_path(self._name)
        partitions = partition_count(self._sender, base)
        parts = [self._name.with_partition(index) for index in range(partitions)] or [self._name]
        about = {
            **header,
            "kind": "topic",
            "topic": self._name.full,
            "partitions": partitions,
            "properties": self._get(f"{base}/properties") or {} if partitions else {},
            "policies": read_policies(self._sender, base),
            "schemas": self._schemas(),
        }
        entries = 0
        with BackupWriter(path) as file:
            file.json(HEADER, about)
            for part in parts:
                entries += self._part(file, part)
            file.end()
        return entries

    def _part(self, file: BackupWriter, part: TopicName) -> int:
        path = topic_path(part)
        before = self._get(f"{path}/quireBackup")
        if before["restoring"]:
            raise AdminCommandError(f"{part.full} is being restored: finish that first")
        states: list[dict[str, Any]] = []
        for name in before["subscriptions"]:
            states += self._subscription(path, name)
        found = self._get(f"{path}/quireBackup")
        if found["openTransaction"]:
            raise AdminCommandError(
                f"{part.full} has an open transaction, whose end is not in the topic yet: wait, or see `quire admin "
                "transactions slow-transactions`"
            )
        file.json(PART, {"topic": part.full, **{key: value for key, value in found.items() if key != "restoring"}})
        for each in states:
            file.json(SUBSCRIPTION, each)
        count = 0
        for ledger_id, entry_id, entry in self._entries(path, position(found["last"])):
            file.entry(ledger_id, entry_id, entry)
            count += 1
            self._progress(count, found["entries"])
        return count

    def _subscription(self, path: str, name: str) -> Iterator[dict[str, Any]]:
        after = ""
        more = True
        while more:
            try:
                found = self._get(f"{path}/subscription/{quote(name, safe='')}/quireState{after}")
            except RequestRefusedError as error:
                if error.status == NOT_FOUND and not after:
                    return  # deleted meanwhile
                raise
            more = found.pop("more")
            if more:
                ledger_id, _, last = found["ranges"][-1]
                after = f"?ledger={ledger_id}&entry={last}"
            yield {"name": name, **found}

    def _entries(self, path: str, last: tuple[int, int]) -> Iterator[tuple[int, int, bytes]]:
        place = (_NONE, _NONE)
        while place < last:
            block = self._get(f"{path}/quireEntries?ledger={place[0]}&entry={place[1] + 1 if place[0] >= 0 else -1}")
            if not block:
                return
            at = 0
            while at < len(block):
                ledger_id, entry_id, size = PLACED.unpack_from(block, at)
                at += PLACED.size + size
                place = (ledger_id, entry_id)
                if place > last:
                    return
                yield ledger_id, entry_id, block[at - size : at]

    def _schemas(self) -> list[dict[str, Any]]:
        try:
            found: list[dict[str, Any]] = self._get(f"{schemas_path(self._name)}/schemas")["getSchemaResponses"]
        except RequestRefusedError as error:
            if error.status == NOT_FOUND:
                return []
            raise
        if [each["version"] for each in found] != list(range(len(found))):
            raise AdminCommandError(
                f"{self._name.full} has schemas whose first versions were deleted, so that their numbers cannot be "
                "restored, which messages name"
            )
        return found

    def _get(self, path: str) -> Any:
        return self._sender.send(Request("GET", path))
