"""Carries a schedule of faults out, on the processes of a local cluster."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import trio

from autorecovery.auditing.election import read_auditor
from quire.metadata.errors import MetadataError
from tools.chaos.errors import ChaosError
from tools.chaos.history import now_us
from tools.chaos.schedule import Fault, Group, How, Injected
from tools.local_cluster.cluster import LocalCluster, Say
from tools.local_cluster.plan import Node
from tools.local_cluster.store import metadata_store

AUDITOR_S = 2.0
"""To ask who the auditor is."""


@dataclass(slots=True)
class _Out:
    """A process that was hurt and is not yet as before."""

    fault: Fault
    node: Node
    at_us: int
    heal_at: float
    """Of the monotonic clock."""
    healed_us: int = 0


class Injector:
    """Carries a schedule out. `step` is called often; it waits for no more than the effect of a signal, or the auditor's name."""

    def __init__(self, cluster: LocalCluster, schedule: Sequence[Fault], say: Say) -> None:
        self._cluster = cluster
        self._waiting = list(schedule)
        self._out: list[_Out] = []
        self._say = say
        self.done: list[Injected] = []

    @property
    def pending(self) -> int:
        return len(self._waiting)

    @property
    def quiet(self) -> bool:
        """Whether everybody is as before."""
        return not self._out

    def step(self, elapsed_s: float) -> None:
        """Do what is due. ChaosError if a process ended that nobody hurt."""
        self._heal()
        self._watch()
        for fault in list(self._waiting):
            if fault.at_s > elapsed_s:
                break
            # One of a group at a time: what has to wait is done as soon as the group is whole.
            if all(each.fault.group is not fault.group for each in self._out) and self._hurt(fault):
                self._waiting.remove(fault)

    def heal_all(self) -> None:
        """No more faults; whoever is down or hangs is helped at once."""
        self._waiting.clear()
        for each in self._out:
            each.heal_at = 0.0
        self._heal()

    def _hurt(self, fault: Fault) -> bool:
        node = self._target(fault)
        if node is None:
            return False
        at_us = now_us()
        if fault.how is How.KILL:
            self._cluster.kill(node)
        else:
            self._cluster.pause(node)
        self._out.append(_Out(fault, node, at_us, time.monotonic() + fault.for_s))
        who = node.name if fault.group is not Group.AUDITOR else f"{node.name}, the auditor"
        self._say(f"{fault.how.value} {who} for {fault.for_s:.1f} s")
        return True

    def _target(self, fault: Fault) -> Node | None:
        nodes = self._cluster.nodes(fault.group.kind)
        if fault.group is Group.AUDITOR:
            auditor = auditor_of(self._cluster)
            nodes = [node for node in nodes if node.address == auditor]
        return nodes[int(fault.choice * len(nodes))] if nodes else None

    def _heal(self) -> None:
        for each in list(self._out):
            if not each.healed_us:
                if time.monotonic() < each.heal_at:
                    continue
                each.healed_us = now_us()
                if each.fault.how is How.KILL:
                    self._cluster.launch(each.node)
                else:
                    self._cluster.resume(each.node)
            if each.fault.how is How.KILL and not self._cluster.is_ready(each.node):
                if not self._cluster.is_alive(each.node):
                    raise ChaosError(f"{each.node.name} did not start again{self._cluster.tail(each.node)}")
                continue
            self._out.remove(each)
            self.done.append(
                Injected(
                    group=each.fault.group,
                    how=each.fault.how,
                    name=each.node.name,
                    at_us=each.at_us,
                    healed_us=each.healed_us,
                    ready_us=now_us(),
                )
            )

    def _watch(self) -> None:
        hurt = {each.node.name for each in self._out}
        for node in self._cluster.nodes():
            if node.name not in hurt and not self._cluster.is_alive(node):
                raise ChaosError(f"{node.name} ended by itself{self._cluster.tail(node)}")


def auditor_of(cluster: LocalCluster) -> str | None:
    """The name of the auditor; None if there is none just now, or nobody answers."""

    async def ask() -> str | None:
        async with metadata_store(cluster.state.addresses, timeout_s=AUDITOR_S) as store:
            return await read_auditor(store)

    try:
        return trio.run(ask)
    except MetadataError:
        return None
