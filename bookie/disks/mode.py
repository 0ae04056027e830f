"""Mode: whether a bookie is read-only, why, and that a restart knows it.

A bookie is read-only if it is configured so, if an operator says so, or for its disks (watch.py).
Source: BookKeeper's BookieStateManager.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import trio

from bookie.config import BookieConfig
from bookie.disks.status import BookieStatus, KeptStatus, read_status
from bookie.disks.watch import DiskWatch
from quire.service.log import get_logger
from quire.world.doors import World

log = get_logger(__name__)


class Mode:
    """Mode of one bookie. `status`: its status when it stopped, if that is to be obeyed."""

    def __init__(
        self, world: World, config: BookieConfig, disks: DiskWatch, status: BookieStatus | None = None
    ) -> None:
        self._disks = disks
        self._forced = config.force_read_only
        self._told = config.force_read_only or (status is not None and status.read_only and status.manual)
        if status is not None and status.read_only and not self._told and config.read_only_mode_enabled:
            disks.was_read_only()
        self.read_only = self._told or bool(disks.reason)
        """True if no adds are accepted except those of high priority."""
        self.changed = trio.Event()
        """Set, and replaced, when `read_only` changes."""
        self.on_change: Callable[[], None] = lambda: None
        """Called when `read_only` has changed, before `changed` is set."""
        self._stopping = False
        self.is_kept = keeps_status(config)
        """True if the mode is kept on the disks."""
        self._status = KeptStatus(world, _folders(config), self._now)
        self._status.began_as(status)
        self.keep = self._status.run
        """Job that writes each change, if `is_kept`."""

    @property
    def reason(self) -> str:
        """Return why the bookie is read-only, for an operator; empty: it is writable."""
        if not self.read_only:
            return ""
        if self._stopping:
            return "it stops"
        if self._forced:
            return "forceReadOnlyBookie=true"
        return self._disks.reason or "an operator said so; PUT /api/v1/bookie/state/readonly ends it"

    def set(self, read_only: bool) -> None:
        """Obey an operator. A bookie configured as read-only, or with a full disk, stays read-only."""
        if not self._forced:
            self._told = read_only
            self._status.changed()
            self.update()

    def update(self) -> None:
        """Look at the disks' reason again."""
        read_only = self._now()[0]
        if self._stopping or read_only == self.read_only:
            return
        log.info("read-only" if read_only else "writable")
        self.read_only = read_only
        self._status.changed()
        self.on_change()
        self.changed.set()
        self.changed = trio.Event()

    def stop(self) -> None:
        """Be read-only until the end, which no restart obeys."""
        self._stopping = self.read_only = True
        self.on_change()

    async def kept(self) -> bool:
        """Wait until the present mode is on a disk; return whether it is. Where it is not to be kept, return True."""
        return not self.is_kept or await self._status.kept()

    def _now(self) -> tuple[bool, bool]:
        """Return whether the bookie is read-only, and whether it was told so."""
        return self._told or self._disks.reason != "", self._told


def keeps_status(config: BookieConfig) -> bool:
    """Return whether a restart obeys the mode before it. One that is configured as read-only has no other mode."""
    return config.persist_status and not config.force_read_only


def _folders(config: BookieConfig) -> tuple[str, ...]:
    return tuple(f"{folder}/current" for folder in config.ledger_directories)


async def status_at_start(world: World, config: BookieConfig) -> BookieStatus | None:
    """Return the status that a bookie had when it stopped; None: there is none, or it is not to be obeyed."""
    if not keeps_status(config):
        return None
    return await world.offload.run(partial(read_status, world.disk, _folders(config)), name="bookie status")
