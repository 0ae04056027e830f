"""Every verb of `quire admin` on a server: the command lines of tests/unit/cli/admin/testdata/verbs.txt, and what they
answer, in the form of `rest_answers`.

Before the first line, and after each that destroys, there is what they are about: tenant t, namespace t/n, topic t/n/x
with subscription s/1 and messages, the cluster c9, and the partitioned topic t/n/p, which stands for t/n/x where
partitions are meant.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pulsar

from tests.support.admin_commands import admin
from tests.support.dialogues import Dialogue, dialogues
from tests.support.rest_answers import Answers

FOLDER = Path(__file__).parents[1] / "unit/cli/admin/testdata"
SHAPES = frozenset(("topics", "subscriptions", "broker-stats", "brokers", "transactions", "schemas"))
"""Groups whose answers have values that differ between runs: only the kind of the answer is compared. The fields of
such answers are compared in tests/golden/rest."""
NOT_RUN = frozenset(("brokers shutdown",))
"""It ends the server; `shut_down` runs it as the last one."""
OWN = (
    "explain t/n/x",
    "explain t/n/x --subscription s/1 --json",
    "diff t/n public/default",
    "backup topic t/n/x {folder}/topic",
    "backup verify {folder}/topic",
    "restore topic {folder}/topic --topic t/n/y",
    "restore list",
    "backup cluster {folder}/cluster",
    "restore cluster {folder}/cluster --metadata-store standalone:{folder}/empty",
    "context create c --url {web}",
    "context use c",
    "context list --json",
    "context delete c",
)
"""Command lines of `quire admin` that are no verbs of a group, and that pulsar-admin does not have."""
_OFFLINE = ("context", "backup verify", "restore cluster")
"""Beginnings of those that ask no server."""
_STATUS = re.compile(r"^quire admin [^:]*: (\d{3}):", re.MULTILINE)
_PREPARED = (
    "clusters create c9 --url http://c9:8080 --broker-url pulsar://c9:6650",
    "tenants create t",
    "tenants create u",
    "namespaces create t/n --bundles 4",
    "namespaces set-encryption-required t/n --disable",
    "topics create t/n/x",
    "topics create-subscription t/n/x -s s/1 --message-id earliest",
    "topics create-partitioned-topic t/n/p -p 2",
    "topics create-subscription t/n/p -s s/1 --message-id earliest",
)


def lines() -> Iterator[tuple[str, str]]:
    """Yield group and rest of each command line."""
    for each in dialogues(FOLDER / "verbs.txt"):
        dialogue = each.values[0]
        assert isinstance(dialogue, Dialogue)
        group = dialogue.command.words[0]
        for step, _ in dialogue.steps:
            words = step.word() if step.words else ""
            if "partition" in step.name:
                words = re.sub(r"\bt/n/x\b", "t/n/p", words)
            yield group, f"{step.name} {words}".strip()


def run_every_verb(web: str, url: str, cluster: str) -> Answers:
    """Run every line on a server, in this process and in the folder of the lines; return the answers by line."""
    found: Answers = {}
    _prepare(web, url)
    for group, line in lines():
        verb = line.partition(" ")[0]
        if f"{group} {verb}" in NOT_RUN:
            continue
        words = re.sub(r"\bc1\b", "c9" if group == "clusters" else cluster, line)
        code, out, err = admin(f"{group} {words} --json --admin-url {web}")
        name = f"{group} {line}"
        while name in found:
            name += " [again]"
        found[name] = list(_answer(group, code, out, err, {web.partition("://")[2]: "{broker}", cluster: "{cluster}"}))
        if "terminate" in verb:
            admin(f"topics delete t/n/x -f --yes --admin-url {web}")
        if "--yes" in line or " delete" in line:
            _prepare(web, url)
    return found


def shut_down(web: str) -> Answers:
    """Run the verb that ends a server, on one that is not needed any more; return its answer by line."""
    line = "brokers shutdown --yes"
    return {line: list(_answer("brokers", *admin(f"{line} --json --admin-url {web}"), {}))}


def run_own(web: str, url: str, folder: Path) -> dict[str, tuple[int, str, str]]:
    """Run the lines of OWN on a server; return exit code, output and errors by line. `folder`: an empty one."""
    _prepare(web, url)
    found = {}
    for line in OWN:
        words = line.format(folder=folder, web=web)
        found[line] = admin(words if line.startswith(_OFFLINE) else f"{words} --admin-url {web}")
    return found


def _answer(group: str, code: int, out: str, err: str, names: dict[str, str]) -> Iterator[str]:
    status = _STATUS.search(err)
    if status is not None:
        yield status[1]
        return
    yield "done" if code == 0 else f"exit {code}"
    if code != 0 or not out.strip():
        return
    value: Any = json.loads(out)
    if group in SHAPES:
        yield f"a {type(value).__name__}"
        return
    text = json.dumps(_sorted(value), sort_keys=True, ensure_ascii=False)
    for name, stand_in in names.items():
        text = text.replace(name, stand_in)
    yield re.sub(r"127\.0\.0\.1:\d+", "{address}", text)


def _sorted(value: Any) -> Any:
    """Return a value with its lists of texts in order: the original's have none."""
    if isinstance(value, dict):
        return {key: _sorted(each) for key, each in value.items()}
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return sorted(value)
    return value


def _prepare(web: str, url: str) -> None:
    made = [admin(f"{each} --admin-url {web}")[0] for each in _PREPARED]
    if made[_PREPARED.index("topics create t/n/x")] == 0:
        client = pulsar.Client(
            url, operation_timeout_seconds=5, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null")
        )
        producer = client.create_producer("t/n/x", batching_enabled=False, producer_name="recorder")
        for number in range(5):
            producer.send(f"message {number}".encode())
        client.close()
