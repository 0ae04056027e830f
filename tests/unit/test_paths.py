"""The main paths are as docs/paths shows them: a needless call is seen as a difference. See tests/support/paths.py."""

from __future__ import annotations

import re
from collections.abc import Callable
from difflib import unified_diff
from typing import Any

import pytest

from broker.topics.topic import Topic
from tests.support.credentials import DATA_URL, TOKEN, token
from tests.support.paths import FOLDER, MESSAGES, ROOT, record

CALLS_MAX = 110
FILES_MAX = 32
"""Bounds of the path of a publish, so that it can be read as a whole."""

SWAPPING = {"spark-range"}
"""Paths of a client that reads ahead: how its answers are cut into pieces, and which task goes first, may differ."""
TRANSPORT = {
    "quire/client/connection.py",
    "quire/client/connections.py",
    "quire/wire/pulsar/client_splitter.py",
    "quire/wire/pulsar/receive_buffer.py",
    "quire/world/outbox.py",
}
HOP = """
def publish(self, producer, run):
    return stored(self, producer, run)
"""


def began(text: str) -> set[str]:
    """Return the functions that were called on a path, in no order, without those that move bytes."""
    lines = [line.strip() for line in text.splitlines()[1:] if not line.lstrip().startswith("... ")]
    return {line for line in lines if line.split()[1] not in TRANSPORT}


def difference(name: str, text: str) -> str:
    """Return a diff from the file of a path to the recorded calls; empty if they agree."""
    path = FOLDER / f"{name}.txt"
    before = path.read_text() if path.exists() else ""
    if name in SWAPPING and began(before) == began(text):
        return ""
    lines = unified_diff(before.splitlines(), text.splitlines(), f"docs/paths/{name}.txt", "recorded", lineterm="", n=1)
    return "\n".join(lines)


def test_the_main_paths_are_as_their_files_show_them() -> None:
    recorded = record()
    assert sorted(recorded) == sorted(path.stem for path in FOLDER.glob("*.txt"))
    found = [text for name in recorded if (text := difference(name, recorded[name]))]
    remedy = "if the change is meant: python -m tests.support.paths --write"
    assert not found, "\n".join([remedy, *found])


def test_a_needless_hop_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    names: dict[str, Any] = {"stored": Topic.publish}
    exec(compile(HOP, str(ROOT / "broker" / "topics" / "hop.py"), "exec"), names)
    hop: Callable[..., None] = names["publish"]
    monkeypatch.setattr(Topic, "publish", hop)
    added = [
        line for line in difference("publish", record(only=MESSAGES[:1])["publish"]).splitlines() if line[:1] == "+"
    ]
    assert any(line.split() == ["+", "publish", "broker/topics/hop.py", "broker"] for line in added)


def test_authentication_and_authorization_add_no_call_to_a_message() -> None:
    security = {
        "authenticationEnabled": True,
        "authenticationProviders": (TOKEN,),
        "tokenSecretKey": DATA_URL,
        "authorizationEnabled": True,
        "superUserRoles": ("alice",),
    }
    recorded = record(only=MESSAGES, security=security, token=token().encode())
    assert tuple(recorded) == tuple(sorted(MESSAGES))
    assert {name: text for name in recorded if (text := difference(name, recorded[name]))} == {}


def test_a_path_counts_its_calls_and_files() -> None:
    for path in FOLDER.glob("*.txt"):
        head, *lines = path.read_text().splitlines()
        calls = [line.split() for line in lines if not line.lstrip().startswith("... ")]
        assert head == f"{len(calls)} calls in {len({file for _, file, _ in calls})} files"
        assert all((ROOT / file).exists() and file.startswith(floor.replace(".", "/")) for _, file, floor in calls)


def test_a_publish_is_a_bounded_number_of_calls_in_a_bounded_number_of_files() -> None:
    calls, files = map(int, re.findall(r"\d+", (FOLDER / "publish.txt").read_text().splitlines()[0]))
    assert calls <= CALLS_MAX
    assert files <= FILES_MAX


def test_the_page_of_the_house_links_files_that_exist() -> None:
    page = ROOT / "docs" / "architecture.md"
    links = re.findall(r"\]\(([\w./-]+)\)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []
    sources = {(page.parent / link).resolve() for link in links if link.endswith(".py")}
    assert len(sources) > 30, "each step of a path links its files"
