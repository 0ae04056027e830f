"""Execution of a schedule of faults, on the processes of a local cluster."""

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
"""Time to ask for the auditor."""


@dataclass(slots=True)
class _Out:
    """A process under a fault that has not recovered yet."""

    fault: Fault
    node: Node
    at_us: int
    heal_at: float
    """Time of the monotonic clock."""
    healed_us: int = 0


class Injector:
    """Injector of a schedule. `step` is called often; it waits only for the effect of a signal, or the auditor's
    name."""

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
        """Return whether all processes have recovered."""
        return not self._out

    def step(self, elapsed_s: float) -> None:
        """Inject the faults that are due. Raises ChaosError if a process ended without a fault."""
        self._heal()
        self._watch()
        for fault in list(self._waiting):
            if fault.at_s > elapsed_s:
                break
            # One of a group at a time: a fault that has to wait is injected as soon as the group is whole.
            if all(each.fault.group is not fault.group for each in self._out) and self._hurt(fault):
                self._waiting.remove(fault)

    def heal_all(self) -> None:
        """End the faults, and restart or resume every process at once."""
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
    """Return the name of the auditor; None if there is none, or there is no answer."""

    async def ask() -> str | None:
        async with metadata_store(cluster.state.addresses, cluster.security, timeout_s=AUDITOR_S) as store:
            return await read_auditor(store)

    try:
        return trio.run(ask)
    except MetadataError:
        return None
