"""`quire doctor`: damage in the folders of a stopped server, and remedies. It writes nothing.

A standalone's data directory: FORMAT, the metadata (files, rows, lists of ledgers, ids), the bookie's folders, and
whether the bookie has every entry of every closed ledger. A bookie of a cluster: its folders; `verify-replicas` checks
its entries.

Exit codes: 0 no stored data is damaged, 1 some is, 2 not examined: the server runs, or a folder does not exist.
"""

from __future__ import annotations

import errno
import json
import sys
import time
from collections.abc import Container, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, TextIO

from bookie.config import BookieConfig
from bookie.cookie import VERSION_FILE, rebuild_command
from bookie.doctor.examine import Examined, Look, Progress, Remedies, examine
from bookie.folders import LOCK_FILE, directories_of
from managed_ledger.list_check import check_lists
from quire.metadata import ledger_codec
from quire.metadata.errors import MetadataError
from quire.metadata.layouts import HIERARCHICAL
from quire.metadata.ledger_metadata import LedgerMetadata, LedgerState
from quire.metadata.local.rows import load
from quire.servers.errors import CliError, DataDirectoryError
from quire.servers.standalone.data_directory import FORMAT_NAME, LOCK_NAME, read_format
from quire.world.doors import Disk, DiskLock
from quire.world.map_witness import check_map
from quire.world.real_disk import RealDisk
from quire.world.real_look import look_into

HEALTHY: Final = 0
DAMAGED: Final = 1
USAGE: Final = 2
LEDGERS_ROOT: Final = "/ledgers"
_REPORT_S: Final = 5.0
_COPY: Final = "Bring the data directory back from a copy"
_STANDALONE: Final = Remedies(
    journal="Bring the file back from a copy. Without one, start once with skipReplayJournalInvalidRecord=true: what "
    "is "
    "in the damaged "
    'groups is lost (docs/operating.md, "When the journal is damaged")',
    storage="Bring the data directory back from a copy. Without one, what is damaged stays unreadable; the rest can be "
    "read if the "
    'server starts (docs/operating.md, "What doctor finds")',
)


class InUseError(CliError):
    """A running server uses the folders."""


def run_doctor(data_dir: Path | None, conf: Path | None, *, as_json: bool) -> int:
    """Run the command; return the exit code."""
    from quire.servers.bookie.config import BOOKIE
    from quire.servers.bookie.located import located, zookeeper_config
    from quire.service import log
    from quire.service.errors import ConfigError

    log.configure("error", sys.stderr)
    try:
        if (data_dir is None) == (conf is None):
            raise CliError("give one of --data-dir (of a standalone server) and --conf (a bookie's bk_server.conf)")
        with _progress(sys.stderr) as progress:
            if data_dir is not None:
                found = examine_standalone(RealDisk(), look_into, str(data_dir.absolute()), progress)
            else:
                assert conf is not None
                server = BOOKIE.load(conf)
                config = located(server, zookeeper_config(server)[1]).bookie
                found = examine_bookie(RealDisk(), look_into, config, progress)
    except (CliError, ConfigError, ValueError, OSError) as error:
        print(f"quire doctor: {error}", file=sys.stderr)
        return USAGE
    tell(found, sys.stdout, as_json=as_json)
    return DAMAGED if found.damaged else HEALTHY


def tell(found: Examined, out: TextIO, *, as_json: bool) -> None:
    """Print all findings, and the totals in the last line."""
    findings = sorted(dict.fromkeys(found.findings), key=lambda finding: not finding.loses)
    damaged = len({finding.file for finding in found.damaged})
    for finding in findings:
        if as_json:
            value = {"file": finding.file, "damaged": finding.loses, "what": finding.what, "remedy": finding.remedy}
            print(json.dumps(value), file=out)
            continue
        print(f"{'DAMAGED' if finding.loses else 'note   '} {finding.file} {finding.what}", file=out)
        if finding.remedy:
            print(f"        {finding.remedy}", file=out)
    if as_json:
        print(json.dumps({"files": found.files, "damagedFiles": damaged, "healthy": not damaged}), file=out)
    else:
        print(f"{found.files} files examined: {f'{damaged} damaged' if damaged else 'healthy'}", file=out)


# --- a bookie


def examine_bookie(disk: Disk, look: Look, config: BookieConfig, progress: Progress) -> Examined:
    """Examine the folders of journals, entry logs and indexes. Raises InUseError, CliError, OSError."""
    rebuild = f'Rebuild the bookie from the others: {rebuild_command(config.id)} (docs/operating.md, "replace-disk")'
    folders = directories_of(config)
    for folder in folders:
        if not disk.exists(folder):
            raise CliError(f"there is no folder {folder}")
    with _locked(disk, [f"{folder}/{LOCK_FILE}" for folder in folders]):
        return _bookie(disk, look, config, Remedies(journal=rebuild, storage=rebuild), progress)


def _bookie(
    disk: Disk,
    look: Look,
    config: BookieConfig,
    remedies: Remedies,
    progress: Progress,
    existing: Container[int] | None = None,
) -> Examined:
    return examine(
        disk,
        look,
        config,
        remedies=remedies,
        progress=progress,
        existing=existing,
    )


# --- a standalone server


def examine_standalone(disk: Disk, look: Look, root: str, progress: Progress) -> Examined:
    """Examine a data directory. Raises InUseError, CliError, OSError."""
    names = disk.names(root)
    if FORMAT_NAME not in names and "metadata" not in names:
        raise CliError(f"{root} is not a data directory of quire: it contains neither {FORMAT_NAME} nor metadata")
    folders = _folders(root)
    locks = [f"{root}/{LOCK_NAME}", f"{folders[0]}/{LOCK_FILE}", f"{folders[1]}/{LOCK_FILE}"]
    with _locked(disk, locks):
        metadata = Examined()
        nodes = _metadata(disk, look, root, metadata)
        if all(disk.exists(folder) for folder in folders):
            existing = None if nodes is None else {each for path in nodes if (each := _ledger_id(path)) is not None}
            config = BookieConfig(journal_directories=folders[:1], ledger_directories=folders[1:2])
            found = _bookie(disk, look, config, _STANDALONE, progress, existing)
        else:
            found = Examined()
            found.noted(f"{root}/bookie", "is not there yet: the server never started to its end")
        _format(disk, root, found)
        found.files += metadata.files
        found.findings.extend(metadata.findings)
        if nodes is not None:
            _compare(disk, root, nodes, found)
    return found


def _folders(root: str) -> tuple[str, str, str]:
    return f"{root}/bookie/journal", f"{root}/bookie/ledgers", f"{root}/bookie/ledgers"


def _format(disk: Disk, root: str, found: Examined) -> None:
    path = f"{root}/{FORMAT_NAME}"
    found.files += 1
    try:
        read_format(disk, path)
    except FileNotFoundError:
        found.lost(path, "is missing", 'Write it again: "quire standalone 1" and a newline')
    except DataDirectoryError as error:
        found.lost(path, str(error).removeprefix(f"{path} "), 'Write it again: "quire standalone 1" and a newline')


def _metadata(disk: Disk, look: Look, root: str, found: Examined) -> dict[str, bytes] | None:
    """Examine the metadata store; return the values of its nodes by path, None if they cannot be read."""
    folder = f"{root}/metadata"
    if not disk.exists(folder):
        found.lost(folder, "is missing", _COPY)
        return None
    check = check_map(disk, folder)
    found.files += len(disk.names(folder))
    for finding in check.findings:
        if finding.loses:
            found.lost(finding.file, finding.what, _COPY)
        else:
            found.findings.append(finding)
    if check.damage is not None or check.is_new:
        return None
    try:
        rows = look(folder)
        try:
            return {path: node.value for path, node in load(rows).nodes.items()}
        finally:
            rows.close()
    except (OSError, MetadataError) as error:
        found.lost(folder, f"cannot be read: {error}", _COPY)
        return None


def _compare(disk: Disk, root: str, nodes: dict[str, bytes], found: Examined) -> None:
    """Check the metadata against what was found of the bookie."""
    for what in _nodes(nodes, found.entries):
        found.lost(f"{root}/metadata", what, _COPY)
    for file, what in _cookies(disk, root, nodes):
        found.lost(file, what, _STANDALONE.cookie)


def _nodes(nodes: dict[str, bytes], entries: dict[int, int]) -> Iterator[str]:
    """Yield inconsistencies in the metadata, and between them and the bookie's number of entries of each ledger."""
    ledgers: dict[int, LedgerMetadata] = {}
    for path, value in nodes.items():
        ledger_id = _ledger_id(path)
        if ledger_id is None:
            continue
        try:
            ledgers[ledger_id] = ledger_codec.decode(value)
        except MetadataError as error:
            yield f"has a node {path} that cannot be read: {error}"
    yield from check_lists(nodes, ledgers)
    reserved = nodes.get(f"{LEDGERS_ROOT}/idgen", b"0")
    limit = int(reserved) if reserved.isdigit() else 0
    for ledger_id, metadata in ledgers.items():
        if ledger_id >= limit:
            yield f"has ledger {ledger_id}, and gives out ids from {limit} on: they would be given out twice"
        if metadata.state is LedgerState.CLOSED and entries.get(ledger_id, 0) <= metadata.last_entry_id:
            yield (
                f"names {metadata.last_entry_id + 1} entries of ledger {ledger_id}, and the bookie has "
                f"{entries.get(ledger_id, 0)}"
            )


def _ledger_id(path: str) -> int | None:
    """Return the ledger whose metadata this node is, None if it is another node."""
    digits = path.removeprefix(f"{LEDGERS_ROOT}/").replace("/", "").replace("L", "")
    if not digits.isascii() or not digits.isdigit():
        return None
    return int(digits) if path == HIERARCHICAL.path(LEDGERS_ROOT, int(digits)) else None


def _cookies(disk: Disk, root: str, nodes: dict[str, bytes]) -> Iterator[tuple[str, str]]:
    """Check that the bookie's cookies are those in the metadata."""
    known = [value for path, value in nodes.items() if path.startswith(f"{LEDGERS_ROOT}/cookies/")]
    for folder in dict.fromkeys(_folders(root)):
        path = f"{folder}/current/{VERSION_FILE}"
        if known and disk.exists(path) and disk.read(path) not in known:
            yield path, "is not the cookie that the metadata know"


# --- locks, progress


@contextmanager
def _locked(disk: Disk, paths: list[str]) -> Iterator[None]:
    """Hold the existing lock files; none is created. Raises InUseError."""
    with ExitStack() as stack:
        for path in paths:
            if not disk.exists(path):
                continue
            try:
                lock: DiskLock = disk.lock(path)
            except BlockingIOError:
                raise InUseError(f"{path} is locked: a server runs on these folders. Stop it first") from None
            except OSError as error:
                if error.errno in (errno.EROFS, errno.EACCES):
                    continue  # a file that is not writable here is not written by any server either
                raise
            stack.callback(lock.release)
        yield


@contextmanager
def _progress(err: TextIO) -> Iterator[Progress]:
    """Show a bar on a terminal, else a line every few seconds."""
    if err.isatty():
        from rich.console import Console
        from rich.progress import Progress as Bar
        from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

        columns = (SpinnerColumn(), TextColumn("{task.completed} {task.description}"), TimeElapsedColumn())
        with Bar(*columns, console=Console(file=err), transient=True) as bar:
            task = bar.add_task("files", total=None)
            yield lambda what, count: bar.update(task, description=what, completed=count)
        return
    reported = time.monotonic()

    def line(what: str, count: int) -> None:
        nonlocal reported
        if time.monotonic() - reported >= _REPORT_S:
            reported = time.monotonic()
            print(f"{count} {what} examined", file=err, flush=True)

    yield line
