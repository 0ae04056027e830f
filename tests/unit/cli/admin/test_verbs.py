"""quire.cli.admin: each verb, and the requests that it makes (testdata/verbs.txt)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.core import TyperGroup

from broker.security.authorization.routes import ROUTES
from quire.cli.admin.app import admin_app
from quire.cli.admin.groups import ALIASES, GROUPS, group
from quire.cli.admin.rendering.tables import RENDERERS
from quire.cli.admin.table import root
from quire.cli.lazy import command_of
from tests.support.admin_commands import admin
from tests.support.admin_verbs import OWN, lines
from tests.support.datadriven import Line
from tests.support.dialogues import Dialogue, dialogues
from tests.unit.cli.admin.recording import Recorder, recorded, shown

TESTDATA = Path(__file__).parent / "testdata"
NOT_SERVED = {"POST /admin/v2/brokers/shutdown", "PUT /admin/v2/persistent/{}/{}/{}/shadowTopics"}
"""Requests of verbs that Quire's brokers do not have: Pulsar's do."""


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    return recorded(monkeypatch)


@pytest.mark.parametrize("dialogue", dialogues(TESTDATA / "verbs.txt"))
def test_requests(dialogue: Dialogue, broker: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(TESTDATA)
    name = dialogue.command.word()

    def answer(step: Line) -> str:
        broker.requests.clear()
        code, _, told = admin(f"{name} {step.name} {step.word() if step.words else ''} --json")
        return "\n".join([*map(shown, broker.requests), *([f"exit {code}: {told}"] if code else [])])

    dialogue.check(answer)


def test_every_verb_has_a_line() -> None:
    asked: set[tuple[str, str]] = set()
    for each in dialogues(TESTDATA / "verbs.txt"):
        dialogue = each.values[0]
        assert isinstance(dialogue, Dialogue)
        asked |= {(dialogue.command.words[0], step.name) for step, _ in dialogue.steps}
    names = {(name, verb.name) for name in GROUPS for verb in group(name).verbs}
    assert names - asked == set()


def leaves(command: Any, *path: str) -> Iterator[tuple[str, ...]]:
    """Yield the commands of a tree that have no parts, hidden ones included."""
    if not isinstance(command, TyperGroup):
        yield path
        return
    context = typer.Context(command)
    for name in command.list_commands(context):
        yield from leaves(command.get_command(context, name), *path, name)


def test_every_command_of_the_tree_is_run_on_a_server() -> None:
    """tests/cluster/test_admin_verbs.py runs verbs.txt and OWN on Quire; tests/interop verbs.txt on Pulsar 4.2.4."""
    run = {tuple(line.split()[:2]) for line in (f"{group} {rest}" for group, rest in lines())}
    run |= {tuple(line.split()[: 1 if line.startswith(("explain", "diff")) else 2]) for line in OWN}
    by_another_name = {("topics", each.name) for each in group("topics").hidden}
    by_another_name |= {(alias, each.name) for alias, name in ALIASES.items() for each in group(name).verbs}
    assert set(leaves(command_of(admin_app()))) == run | by_another_name


def test_a_verb_by_another_name_makes_the_request_of_one_that_is_run() -> None:
    shown = {(each.method, each.path, each.parameters) for each in group("topic-policies").verbs}
    shown |= {(each.method, each.path, each.parameters) for each in group("topics").verbs}
    assert [
        each.name for each in group("topics").hidden if (each.method, each.path, each.parameters) not in shown
    ] == []


def test_every_request_is_one_that_the_broker_serves() -> None:
    served = {f"{method} {_bare(path)}" for method, path in ROUTES}
    made = {f"{verb.method} {_bare(_whole(verb.path))}" for name in GROUPS for verb in group(name).verbs}
    assert made - served == NOT_SERVED


def test_every_renderer_exists_and_no_two_verbs_of_a_group_have_one_name() -> None:
    for found in (*(group(name) for name in GROUPS), root.GROUP):
        assert {each.renderer for each in found.verbs} - RENDERERS <= {""}
        names = [each.name for each in (*found.verbs, *found.hidden)]
        assert len(names) == len(set(names))


def test_no_two_options_of_a_verb_have_one_flag() -> None:
    for name in GROUPS:
        for verb in group(name).verbs:
            flags = [flag for each in verb.parameters for flag in each.flags]
            assert len(flags) == len(set(flags)), (name, verb.name)


def _whole(path: str) -> str:
    if path.startswith("/lookup"):
        path = path.replace("{topic}", "{domain}/{tenant}/{ns}/{local}")
    path = path.replace("{topic.path}", "{tenant}/{ns}/{local}").replace("{topic}", "persistent/{tenant}/{ns}/{local}")
    path = path.replace("{namespace}", "{tenant}/{ns}")
    return path if path.startswith("/") else f"/admin/v2/{path}"


def _bare(path: str) -> str:
    return "/".join("{}" if each.startswith("{") else each for each in path.split("/"))
