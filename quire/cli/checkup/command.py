"""`quire doctor`: the machine, the configuration, the folders of a stopped server; or a running server.

    --url URL                      a running server, over its web port
    --conf FILE                    the configuration of a broker, a standalone server or a bookie, its machine, and a
                                   bookie's folders
    --data-dir FOLDER              a standalone server's folder, which need not be there yet, and its machine

Exit codes: 0 nothing is bad, 1 something is, 2 not examined: the command line or a server that uses the folders. Of
such a server --conf judges the descriptors, and what else needs no folder.
"""

from __future__ import annotations

import datetime
import json
import platform
import sys
from collections.abc import Iterable, Iterator
from importlib import metadata
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO

from quire.cli.checkup import machine, verdicts
from quire.cli.checkup.folders import Folders
from quire.cli.checkup.folders import examine as examine_folders
from quire.cli.checkup.verdicts import CheckResult, Grade
from quire.cli.doctor import DAMAGED, HEALTHY, USAGE, run_doctor
from quire.distribution import installed_version
from quire.servers.standalone.data_directory import FORMAT_NAME, LOCK_NAME

if TYPE_CHECKING:
    from quire.cli.checkup.configured import Configured

LOCKS: Final = (LOCK_NAME, "quire.lock")
_WORDS: Final = {Grade.OK: "ok     ", Grade.WARNING: "WARNING", Grade.BAD: "BAD    "}


def run(
    data_dir: Path | None,
    conf: Path | None,
    url: str | None,
    *,
    server: str | None = None,
    token_file: Path | None = None,
    trust_file: Path | None = None,
    certificate: tuple[Path, Path] | None = None,
    as_json: bool = False,
) -> int:
    """Run the command; return the exit code. `certificate`: files of a certificate and its key, for `url`."""
    if url is not None:
        if data_dir is not None or conf is not None:
            return _refused("give --url alone: it asks a running server; --conf and --data-dir are about files")
        from quire.cli.checkup.running import examine

        try:
            return _tell(examine(url, token_file, trust_file, certificate), sys.stdout, as_json=as_json)
        except (OSError, ValueError) as error:
            return _refused(str(error))
    if data_dir is None and conf is None:
        return _refused("give --data-dir (of a standalone server), --conf (a configuration file) or --url (a server)")
    from quire.cli.checkup.configured import Server, kind_of, read
    from quire.service.errors import ConfigError

    configured: Configured | None = None
    checks: list[Iterator[CheckResult]] = [_versions()]
    if conf is not None:
        kind = Server(server) if server is not None else Server.STANDALONE if data_dir is not None else kind_of(conf)
        try:
            configured = read(conf, kind)
        except (ConfigError, ValueError, OSError) as error:
            found = verdicts.bad("configuration", str(error), "quire config explain KEY prints what a key takes")
            return _tell(chain(_versions(), [found]), sys.stdout, as_json=as_json)
        checks += [iter([verdicts.ok("configuration", f"{conf} can be used by quire {kind.value}")])]
    folders = _folders(data_dir, configured)
    taken = _taken([*folders.all, *([] if data_dir is None else [data_dir])])
    if taken:
        if configured is not None:
            checks += [_alive(folders.all), _configured(configured, runs=True)]
            _tell(chain.from_iterable(checks), sys.stdout, as_json=as_json)
        return _refused(taken)
    checks += [examine_folders(folders), iter([verdicts.descriptors(machine.open_files_max())])]
    if configured is not None:
        checks += [_configured(configured)]
    code = _tell(chain.from_iterable(checks), sys.stdout, as_json=as_json)
    files = _files(data_dir, configured, conf, as_json=as_json)
    return code if files is None else max(code, files)


def _files(data_dir: Path | None, configured: Configured | None, conf: Path | None, *, as_json: bool) -> int | None:
    """Examine the files of a server that has run; return the exit code, None if there are none."""
    from quire.cli.checkup.configured import Server

    if data_dir is not None:
        names = {each.name for each in data_dir.iterdir()} if data_dir.is_dir() else set()
        if not names - {LOCK_NAME}:
            return None
        if FORMAT_NAME not in names and "metadata" not in names:
            return _refused(f"{data_dir} is not a data directory of quire, and not empty: use another folder")
        return run_doctor(data_dir, None, as_json=as_json)
    assert configured is not None
    if configured.server is not Server.BOOKIE or not _has_served(configured):
        return None
    return run_doctor(None, conf, as_json=as_json)


def _has_served(configured: Configured) -> bool:
    return any(Path(folder, "current").is_dir() for folder in configured.ledgers)


def _refused(text: str) -> int:
    print(f"quire doctor: {text}", file=sys.stderr)
    return USAGE


# --- checks


def _versions() -> Iterator[CheckResult]:
    parts = ", ".join(f"{name} {metadata.version(name)}" for name in ("trio", "rocksdict"))
    system = f"Python {platform.python_version()}, {parts}, {platform.system()} {platform.release()}"
    what = f"quire {installed_version()}, {system}"
    yield verdicts.ok("versions", what)


def _folders(data_dir: Path | None, configured: Configured | None) -> Folders:
    if data_dir is not None:
        return Folders(journals=(data_dir / "bookie/journal",), ledgers=(data_dir / "bookie/ledgers",), root=data_dir)
    assert configured is not None
    return Folders(
        journals=tuple(map(Path, configured.journals)),
        ledgers=tuple(map(Path, configured.ledgers)),
        indexes=tuple(map(Path, configured.indexes)),
        usage_full=configured.usage_full if configured.ledgers else None,
        usage_warn=configured.usage_warn,
    )


def _taken(folders: Iterable[Path]) -> str:
    """Return why a server uses the folders; empty: none does."""
    from quire.world.real_disk import RealDisk

    disk = RealDisk()
    for folder in folders:
        for path in (folder / name for name in LOCKS):
            if not path.exists():
                continue
            try:
                disk.lock(str(path)).release()
            except BlockingIOError:
                holder = machine.lock_holder(path)
                by = f" by {holder}" if holder else ""
                return f"{path} is locked{by}: a server runs on these folders. Stop it first, or ask it with --url"
            except OSError:
                continue  # not writable here: the examination of the files says so
    return ""


def _alive(folders: Iterable[Path]) -> Iterator[CheckResult]:
    """Yield the verdicts about the process that uses the folders."""
    for pid in dict.fromkeys(machine.lock_holder_pid(folder / name) for folder in folders for name in LOCKS):
        found = None if pid is None else machine.open_files_of(pid)
        if found is not None:
            yield verdicts.open_descriptors(f" of process {pid}", *found)


def _configured(configured: Configured, *, runs: bool = False) -> Iterator[CheckResult]:
    """Yield the verdicts about what a configuration names. `runs`: its ports are the server's own."""
    from quire.cli.checkup import certificates, store

    for key, host, number in () if runs else configured.ports:
        yield verdicts.port(key, host, number, machine.holder(host, number))
    yield from certificates.examine(configured.values, datetime.datetime.now(datetime.UTC))
    yield from store.examine(configured)


# --- output


def _tell(checks: Iterable[CheckResult], out: TextIO, *, as_json: bool) -> int:
    """Print each verdict as it comes, and their number; return the exit code."""
    counts = dict.fromkeys(Grade, 0)
    for check in checks:
        counts[check.verdict] += 1
        if as_json:
            value = {"check": check.name, "verdict": check.verdict.value, "what": check.what, "remedy": check.remedy}
            _line(json.dumps(value), out)
            continue
        _line(f"{_WORDS[check.verdict]} {check.name} {check.what}", out)
        if check.remedy:
            _line(f"        {check.remedy}", out)
    total = sum(counts.values())
    warnings, wrong = counts[Grade.WARNING], counts[Grade.BAD]
    if as_json:
        _line(json.dumps({"checks": total, "warnings": warnings, "bad": wrong}), out)
    else:
        _line(f"{total} checks: {warnings} warnings, {wrong} bad", out)
    return DAMAGED if wrong else HEALTHY


def _line(text: str, out: TextIO) -> None:
    print(text, file=out, flush=True)
