"""The leases of a broker: one per requested bundle, each followed by a task."""

from __future__ import annotations

from collections.abc import Callable

import trio

from broker.errors import ServiceNotReadyError, translated
from broker.ownership.bundles import Bundle
from broker.ownership.config import OwnershipOptions
from broker.ownership.following import Tasks
from broker.ownership.lease import Lease, LeaseState
from broker.ownership.values import Owner
from quire.metadata.store import MetadataStore

LEASES_MAX = 10_000
"""Maximum number of watched bundles of other brokers; the least recently requested are dropped."""


class Leases:
    """Leases by the path of their node. `run` must run."""

    def __init__(
        self, metadata: MetadataStore, me: Owner, options: OwnershipOptions, on_lost: Callable[[Lease], None]
    ) -> None:
        self._metadata = metadata
        self._me = me
        self._options = options
        self._on_lost = on_lost
        self._leases: dict[str, Lease] = {}
        """In order of the last request, oldest first."""
        self._scopes: dict[str, trio.CancelScope] = {}
        self._tasks = Tasks()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Follow the leases until cancelled."""
        await self._tasks.run(task_status)

    def find(self, bundle: Bundle) -> Lease | None:
        """Return the bundle's lease, if there is one, at once."""
        return self._leases.get(bundle.path)

    def held(self) -> list[Lease]:
        """Return the leases of this broker, including those whose topics are being closed."""
        return [lease for lease in self._leases.values() if lease.state is not LeaseState.NONE]

    async def get(self, bundle: Bundle) -> Lease:
        """Return the bundle's lease, looked at at least once.

        Raises MetadataUnavailableError, ServiceNotReadyError (not running)."""
        path = bundle.path
        lease = self._leases.pop(path, None)
        if lease is None:
            lease = self._start(bundle)
        if len(self._leases) >= LEASES_MAX:
            self._forget_oldest()
        self._leases[path] = lease  # keep as the most recent
        if not lease.known:
            with translated(f"cannot read the owner of {bundle}"):
                await lease.look()
        return lease

    def _start(self, bundle: Bundle) -> Lease:
        if self._tasks.nursery is None:
            raise ServiceNotReadyError("the broker is not registered")
        options = self._options
        lease = Lease(
            self._metadata,
            bundle,
            self._me,
            recheck_s=options.recheck_s,
            fresh_s=options.lease_fresh_s,
            on_lost=self._on_lost,
        )
        scope = self._scopes[bundle.path] = trio.CancelScope()

        async def run() -> None:
            with scope:
                await lease.run()

        self._tasks.nursery.start_soon(run, name=f"lease {bundle}")
        return lease

    def _forget_oldest(self) -> None:
        for path, lease in self._leases.items():
            if lease.idle:
                del self._leases[path]
                self._scopes.pop(path).cancel()
                return
