"""The injector of a chaos run, on a cluster of names."""

from __future__ import annotations

from typing import cast

import pytest

from tests.support.refusals import refuses
from tools.chaos import injector as chaos_injector
from tools.chaos.errors import ChaosError
from tools.chaos.injector import Injector
from tools.chaos.schedule import Fault, Group, How
from tools.local_cluster.cluster import LocalCluster
from tools.local_cluster.plan import Kind, Node

FAR = 1e9


class FakeTargets:
    """Processes that are names in sets."""

    def __init__(self) -> None:
        self.all = [
            Node(name=f"{kind.value}{number}", kind=kind, ports=(1000 * place + number,))
            for place, kind in enumerate(Kind)
            for number in (1, 2)
        ]
        self.dead: set[str] = set()
        self.paused: set[str] = set()
        self.starting: set[str] = set()
        self.did: list[str] = []

    def nodes(self, *kinds: Kind) -> list[Node]:
        return [node for node in self.all if not kinds or node.kind in kinds]

    def is_alive(self, node: Node) -> bool:
        return node.name not in self.dead

    def is_ready(self, node: Node) -> bool:
        return self.is_alive(node) and node.name not in self.starting

    def kill(self, node: Node) -> None:
        assert self.is_ready(node)
        self.dead.add(node.name)
        self.did.append(f"kill {node.name}")

    def launch(self, node: Node) -> None:
        self.dead.remove(node.name)
        self.starting.add(node.name)
        self.did.append(f"launch {node.name}")

    def pause(self, node: Node) -> None:
        assert self.is_ready(node)
        self.paused.add(node.name)
        self.did.append(f"pause {node.name}")

    def resume(self, node: Node) -> None:
        self.paused.remove(node.name)
        self.did.append(f"resume {node.name}")

    def tail(self, node: Node) -> str:
        return ""


class Clock:
    now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(chaos_injector, "time", made)
    return made


def injector(cluster: FakeTargets, *faults: Fault) -> Injector:
    return Injector(cast(LocalCluster, cluster), faults, lambda text: None)


def fault(group: Group, how: How, at_s: float = 0.0, for_s: float = 2.0, choice: float = 0.0) -> Fault:
    return Fault(at_s=at_s, group=group, how=how, for_s=for_s, choice=choice)


def test_a_killed_process_is_started_again_in_time_and_counts_when_it_is_ready(clock):
    cluster = FakeTargets()
    made = injector(cluster, fault(Group.BOOKIE, How.KILL, at_s=3.0, choice=0.6))
    made.step(2.9)
    assert cluster.did == []
    made.step(3.0)
    made.step(4.0)
    assert cluster.did == ["kill bookie2"]
    clock.now = 2.0
    made.step(5.0)
    assert cluster.did == ["kill bookie2", "launch bookie2"]
    assert made.done == []
    assert not made.quiet
    cluster.starting.clear()
    made.step(5.1)
    assert [(each.name, each.how) for each in made.done] == [("bookie2", How.KILL)]
    assert made.quiet


def test_of_a_group_one_is_hurt_at_a_time_and_groups_overlap(clock):
    cluster = FakeTargets()
    made = injector(
        cluster,
        fault(Group.BROKER, How.PAUSE),
        fault(Group.BROKER, How.KILL, choice=0.9),
        fault(Group.ZOOKEEPER, How.PAUSE),
    )
    made.step(0.0)
    made.step(1.0)
    assert cluster.did == ["pause broker1", "pause zk1"]
    clock.now = 2.0
    made.step(2.0)
    assert cluster.did == ["pause broker1", "pause zk1", "resume broker1", "resume zk1", "kill broker2"]
    assert [each.name for each in made.done] == ["broker1", "zk1"]


def test_the_auditor_is_whoever_has_that_office_then(clock, monkeypatch):
    cluster = FakeTargets()
    second = next(node for node in cluster.all if node.name == "recovery2")
    answers: list[str | None] = [None, "nobody:1", second.address]
    monkeypatch.setattr(chaos_injector, "auditor_of", lambda cluster: answers.pop(0))
    made = injector(cluster, fault(Group.AUDITOR, How.KILL))
    for _ in range(3):
        made.step(0.0)
    assert cluster.did == ["kill recovery2"]


def test_a_process_that_ends_by_itself_ends_the_run(clock):
    cluster = FakeTargets()
    made = injector(cluster)
    made.step(0.0)
    cluster.dead.add("bookie1")
    refuses(ChaosError, lambda: made.step(1.0), "bookie1 ended by itself")


def test_one_that_does_not_start_again_ends_the_run(clock):
    cluster = FakeTargets()
    made = injector(cluster, fault(Group.BOOKIE, How.KILL))
    made.step(0.0)
    clock.now = 2.0
    made.step(2.0)
    cluster.dead.add("bookie1")
    refuses(ChaosError, lambda: made.step(2.1), "bookie1 did not start again")


def test_at_the_end_everybody_is_helped_at_once_and_nobody_else_is_hurt(clock):
    cluster = FakeTargets()
    made = injector(cluster, fault(Group.BROKER, How.PAUSE, for_s=FAR), fault(Group.BOOKIE, How.KILL, at_s=FAR))
    made.step(0.0)
    made.heal_all()
    made.step(2 * FAR)
    assert cluster.did == ["pause broker1", "resume broker1"]
    assert made.quiet
    assert made.pending == 0
