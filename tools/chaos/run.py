"""A chaos run: start the cluster and clients, inject faults, heal, read every copy, and check."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tools.chaos.checker import Checker, Verdict
from tools.chaos.client_process import Client, listen
from tools.chaos.errors import ChaosError
from tools.chaos.history import Break, Breaks, read
from tools.chaos.injector import Injector
from tools.chaos.schedule import Fault, Group, How, Injected
from tools.local_cluster.cluster import LocalCluster, Say
from tools.local_cluster.plan import Kind, Plan

TOPICS = 20
RATE_MIN = 2000.0
"""Minimum messages per second published, in all."""
RATE = 2250.0
READY_S = 90.0
DRAIN_S = 120.0
"""Time for the last receipt, and for the last delivery after it."""
VERIFY_S = 240.0
"""Time until every copy must exist again."""
TICK_S = 0.05
PLAN_CONF: dict[Kind, dict[str, object]] = {
    Kind.BROKER: {
        "bookkeeperClientTimeoutInSeconds": 5,
        # Ledgers must end within the run, so that there are many of them, and more copies to restore than of the last
        # ones.
        "managedLedgerMaxEntriesPerLedger": 5000,
        "managedLedgerMinLedgerRolloverTimeMinutes": 0,
        # The messages checked at the end must still exist.
        "defaultRetentionTimeInMinutes": -1,
        "defaultRetentionSizeInMB": -1,
        "loadBalancerSheddingEnabled": "false",
    },
    Kind.RECOVERY: {
        "openLedgerRereplicationGracePeriod": 5000,
        "lockReleaseOfFailedLedgerGracePeriod": 5000,
        "rwRereplicateBackoffMs": 1000,
        # A bookie may lack entries that others confirmed, so every entry is checked, and often.
        "auditorPeriodicCheckInterval": 15,
        "auditorLedgerVerificationPercentage": 100,
    },
}


@dataclass(slots=True, kw_only=True)
class Outcome:
    """Outcome of a run."""

    seed: int
    seconds: float
    load_s: float = 0.0
    faults: list[Injected] = field(default_factory=list)
    skipped: int = 0
    """Faults of the schedule that did not fit the time."""
    verdict: Verdict = field(default_factory=Verdict)
    checker: Checker | None = None
    breaks: tuple[int, int] = (0, 0)
    """Lost connections of producers and of consumers."""
    copies: dict[str, object] = field(default_factory=dict)
    """The last line of verify-replicas."""
    rounds: list[int] = field(default_factory=list)
    """Bad copies found by each complete read."""
    errors: list[str] = field(default_factory=list)
    """Errors in the servers' logs."""

    @property
    def rate(self) -> float:
        return self.verdict.receipts / self.load_s if self.load_s else 0.0

    def failures(self, *, faults_min: int, rate_min: float) -> list[str]:
        """Return the reasons why the run failed, or proves nothing; empty on success."""
        found = [f"{count} {kind}" for kind, count in self.verdict.counts.items()]
        if not self.copies.get("good"):
            found.append(f"copies are missing or bad at the end: {self.copies}")
        if len(self.faults) < faults_min:
            found.append(f"{len(self.faults)} faults were injected, {faults_min} are the least")
        if self.rate < rate_min:
            found.append(f"{self.rate:.0f} messages/s had a receipt, {rate_min:.0f} are the least")
        if not self.breaks[0] or not self.breaks[1]:
            found.append("no client ever lost its connection: nothing was at risk")
        return found


def plan_of(*, bookies: int = 4, brokers: int = 2, zookeepers: int = 3, secure: bool = False) -> Plan:
    """Return the plan: three bookies and a spare one, two brokers, three ZooKeeper nodes, two auto recoveries, one of
    them the auditor."""
    return Plan(zookeepers=zookeepers, bookies=bookies, brokers=brokers, recoveries=2, secure=secure, conf=PLAN_CONF)


def run(
    cluster: LocalCluster,
    folder: Path,
    schedule: Sequence[Fault],
    outcome: Outcome,
    say: Say,
    *,
    topics: int,
    rate: float,
) -> None:
    """Run everything but the start and the end of the cluster. Raises ChaosError, ClusterError."""
    clients: list[Client] = []
    try:
        consumer = Client("consume", cluster, folder, topics=topics, rate=rate)
        clients.append(consumer)
        _wait(clients, lambda: consumer.is_ready, READY_S, "the consumers are not ready")
        producer = Client("produce", cluster, folder, topics=topics, rate=rate)
        clients.append(producer)
        _wait(clients, lambda: producer.is_ready, READY_S, "the producers are not ready")
        say(f"{topics} topics, {rate:.0f} messages/s")
        injector = Injector(cluster, schedule, say)
        begun = time.monotonic()
        shown = begun
        while (elapsed_s := time.monotonic() - begun) < outcome.seconds:
            injector.step(elapsed_s)
            listen(clients, TICK_S)
            if time.monotonic() - shown > 10:
                shown = time.monotonic()
                say(f"{elapsed_s:.0f} of {outcome.seconds:.0f} s: {_figures(clients, injector)}")
        outcome.skipped = injector.pending
        injector.heal_all()
        producer.stop()
        outcome.load_s = time.monotonic() - begun
        say("no more faults; waiting for the last receipts")

        def settled() -> bool:
            injector.step(0.0)
            return producer.is_over and injector.quiet

        _wait(clients, settled, DRAIN_S, "some messages are still unanswered")
        outcome.faults = injector.done
        say(f"waiting for the last deliveries: {_figures(clients, injector)}")
        _drain(clients, consumer, producer)
        consumer.stop()
        _wait(clients, lambda: consumer.is_over, DRAIN_S, "the consumers do not end")
    finally:
        for client in clients:
            client.close()
    say("stopping the brokers: they close their ledgers")
    for node in cluster.nodes(Kind.BROKER):
        cluster.stop(node)
    _verify(cluster, outcome, say)
    outcome.errors = cluster.errors()
    say("checking what the clients saw")
    check(folder, outcome)


def check(folder: Path, outcome: Outcome) -> None:
    """Check the histories in a folder together with the faults of the outcome."""
    producer_breaks = Breaks.of_log((folder / "produce.log").read_text(errors="replace"))
    consumer_breaks = Breaks.of_log((folder / "consume.log").read_text(errors="replace"))
    hung = (
        Break(fault.at_us, fault.healed_us)
        for fault in outcome.faults
        if fault.group is Group.BROKER and fault.how is How.PAUSE
    )
    checker = Checker(producer_breaks, consumer_breaks, hung=hung)
    checker.producers(read(folder / "produce.history"))
    checker.consumers(read(folder / "consume.history"))
    outcome.verdict = checker.end()
    outcome.checker = checker
    outcome.breaks = (len(producer_breaks), len(consumer_breaks))


def _drain(clients: list[Client], consumer: Client, producer: Client) -> None:
    """Wait until as many different messages were delivered as had a receipt, or none arrives any more, which the
    checker then reports."""
    last, moved = -1, time.monotonic()
    deadline = moved + DRAIN_S
    while consumer.figures.get("different", 0) < producer.figures.get("answered", 0) and time.monotonic() < deadline:
        listen(clients, TICK_S)
        now = consumer.figures.get("different", 0)
        if now != last:
            last, moved = now, time.monotonic()
        elif time.monotonic() - moved > DRAIN_S / 4:
            return


def _verify(cluster: LocalCluster, outcome: Outcome, say: Say) -> None:
    """Read every copy until all are good, or the time is over. Auto recovery has to find and restore missing ones."""
    deadline = time.monotonic() + VERIFY_S
    while True:
        say("reading every copy of every ledger")
        outcome.copies = cluster.verify_replicas()
        outcome.rounds.append(int(str(outcome.copies["badCopies"])))
        if outcome.copies["good"] or time.monotonic() > deadline:
            return
        say(f"{outcome.copies['badCopies']} copies of {outcome.copies['badLedgers']} ledgers are missing yet")


def _figures(clients: list[Client], injector: Injector) -> str:
    figures = {name: count for client in clients for name, count in client.figures.items()}
    text = ", ".join(f"{count} {name}" for name, count in figures.items())
    return f"{text}, {len(injector.done)} faults"


def _wait(clients: list[Client], condition: Callable[[], bool], seconds: float, otherwise: str) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise ChaosError(f"{otherwise} after {seconds:g} s")
        listen(clients, TICK_S)
