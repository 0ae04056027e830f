"""`quire autorecovery` as processes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.process import ServerProcess, start_all

SESSION_MS = 2000


class AutoRecoveryProcess(ServerProcess):
    """One candidate for auditor, with its worker; its delays are short enough for tests.

    `name` is the name of its files in `folder` and its name in votes and locks.
    """

    def __init__(self, folder: Path, metadata_uri: str, name: str, **settings: object) -> None:
        self.name = name
        given = {
            "bookieId": name,
            "metadataServiceUri": metadata_uri,
            "zkTimeout": SESSION_MS,
            "openLedgerRereplicationGracePeriod": 500,
            "rwRereplicateBackoffMs": 200,
            "lockReleaseOfFailedLedgerGracePeriod": 8000,
            **settings,
        }
        super().__init__("autorecovery", folder, given, name=name)

    def ready_line(self) -> str:
        assert self.process is not None
        return rf"ready autorecovery={self.name} .*pid={self.process.pid}$"


@contextmanager
def auto_recovery(
    folder: Path, metadata_uri: str, *names: str, **settings: object
) -> Iterator[list[AutoRecoveryProcess]]:
    """Start processes; at the end kill them and check their logs."""
    made = [AutoRecoveryProcess(folder, metadata_uri, name, **settings) for name in names]
    try:
        start_all(*made)
        yield made
    finally:
        for each in made:
            each.kill()
    for each in made:
        each.check_log()
