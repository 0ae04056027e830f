"""Auto recovery as a service: the auditor's election and a replication worker on one ledger client, until stopped.

    metadata --> AuditorElection --> Auditor           -- marks -->  ReplicationWorker --> copies, metadata
                 (one wins)          finds lost bookies              (all of them work)

In a process of its own (`quire autorecovery`), beside a bookie (autoRecoveryDaemonEnabled), or in the simulator.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

import trio

from autorecovery.at_once import until_available
from autorecovery.auditing.auditor import Auditor
from autorecovery.auditing.election import AuditorElection
from autorecovery.auditing.metrics import AuditorStats
from autorecovery.config import SCRIPT_CLASS, AutoRecoveryConfig
from autorecovery.copying.metrics import WorkerStats
from autorecovery.copying.worker import ReplicationWorker
from autorecovery.entry_lists import entry_lists
from autorecovery.ledger_checker import LedgerChecker
from autorecovery.marks.underreplication import UnderreplicatedLedgers
from quire.ledger.bookies.authentication import BookieCredentials
from quire.ledger.bookies.watcher import RACK_MAP_PATH, Locate, WatcherConfig
from quire.ledger.client import LedgerClient
from quire.ledger.client_stats import ClientStats
from quire.ledger.context import LedgerConfig
from quire.ledger.opening import open_client_on
from quire.ledger.placement import PlacementConfig
from quire.metadata.errors import SessionExpiredError
from quire.metadata.store import MetadataStore
from quire.service.log import get_logger
from quire.wire.bookkeeper.entry import DIGEST_TYPES
from quire.world.doors import World
from quire.world.unwrap import leaves

if TYPE_CHECKING:
    from quire.world.tls_sides import ClientTls

log = get_logger(__name__)

BOOKIE_TIMEOUT_S = 10.0
"""Seconds without an answer after which a bookie counts as silent."""


class RecoveryStats:
    """Counters of a process that runs auto recovery."""

    def __init__(self) -> None:
        self.auditor = AuditorStats()
        self.worker = WorkerStats()
        self.client = ClientStats()
        """Counts of the ledger client in use, or of the last one."""
        self.election: AuditorElection | None = None
        """Election of the service that runs, or ran last."""


async def run_autorecovery(
    world: World,
    metadata: MetadataStore,
    client: LedgerClient,
    config: AutoRecoveryConfig,
    *,
    name: str,
    root: str = "/ledgers",
    auditor: bool = True,
    worker: bool = True,
    stats: RecoveryStats | None = None,
    ready: Callable[[], None] = lambda: None,
    stop: trio.Event,
) -> None:
    """Run until `stop` is set.

    `name` is stored in votes and locks. `ready` is called when the election and the worker have begun.

    Raises: SessionExpiredError if the store continues without a session, IncompatibleUnderreplicationError; not in
    groups.
    """
    stats = stats or RecoveryStats()
    stats.client = client.stats
    marks = UnderreplicatedLedgers(
        metadata,
        root=root,
        rng=world.rng,
        wall_ms=world.clock.wall_ms,
        owner=name,
        store_mark_time=config.store_mark_time,
    )
    checker = LedgerChecker(
        client,
        rng=world.rng,
        password=config.password.encode(),
        digest_type=DIGEST_TYPES[config.digest_type],
        reads_max=config.checker_reads_max,
    )
    audit = Auditor(
        metadata,
        client,
        marks,
        config,
        wall_ms=world.clock.wall_ms,
        rng=world.rng,
        root=root,
        checker=checker,
        adheres=client.placement.adherence,
        list_entries=entry_lists(client),
        stats=stats.auditor,
    )
    stats.election = AuditorElection(metadata, audit.run, bookie_id=name, root=root)
    failure: Exception | None = None
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_until_stopped, stop, nursery.cancel_scope, name="stop")
            nursery.start_soon(_until_expired, metadata, name="metadata expired")
            await until_available(marks.prepare)
            if worker:
                working = ReplicationWorker(world, client, marks, config, stats=stats.worker)
                await nursery.start(working.run, name="replication worker")
            if auditor:
                await nursery.start(stats.election.run, name="auditor election")
            ready()
            log.info("auto recovery is ready", name=name, auditor=auditor, worker=worker)
    except* Exception as errors:
        failure = first_cause(errors)
    if failure is not None:
        raise failure


async def _until_stopped(stop: trio.Event, scope: trio.CancelScope) -> None:
    await stop.wait()
    scope.cancel()


async def _until_expired(metadata: MetadataStore) -> None:
    await metadata.expired.wait()
    raise SessionExpiredError("the session with the metadata service has ended: restart auto recovery")


def first_cause(error: BaseException) -> Exception:
    """Return the first failure in a group; prefer a lost session, because the other failures follow from it."""
    failures = [leaf for leaf in leaves(error) if isinstance(leaf, Exception)]
    return next((each for each in failures if isinstance(each, SessionExpiredError)), failures[0])


def open_repair_client(
    world: World,
    metadata: MetadataStore,
    config: AutoRecoveryConfig,
    *,
    root: str = "/ledgers",
    tls: ClientTls | None = None,
    credentials: BookieCredentials | None = None,
    locate: Locate | None = None,
) -> AbstractAsyncContextManager[LedgerClient]:
    """Return a ledger client that places copies as configured. `locate`: asks for racks. NoNodeError if there is no
    cluster."""
    placement = PlacementConfig(
        policy=config.placement_policy,
        min_racks_per_write_quorum=config.min_racks_per_write_quorum,
        enforce_min_racks_per_write_quorum=config.enforce_min_racks_per_write_quorum,
        desired_zones_per_write_quorum=config.desired_zones,
        min_zones_per_write_quorum=config.min_zones,
        strict_zones=config.strict_zones,
        disk_weighted=config.disk_weighted,
        max_weight_multiple=config.weight_multiple,
    )
    settings = LedgerConfig(add_timeout_s=BOOKIE_TIMEOUT_S, read_timeout_s=BOOKIE_TIMEOUT_S, placement=placement)
    watcher = WatcherConfig(
        weights_interval_s=config.weights_interval_s,
        weights_retry_s=config.weights_retry_s,
        weights_answer_s=config.weights_answer_s,
        locate=locate,
        rack_map_path="" if config.rack_class == SCRIPT_CLASS else RACK_MAP_PATH,
    )
    return open_client_on(world, metadata, settings, root=root, watcher=watcher, tls=tls, credentials=credentials)
