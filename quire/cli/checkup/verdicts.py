"""Verdicts of `quire doctor` about facts of a machine, a configuration or a server. Pure.

A verdict is `ok`, `warning` (it works, and will not always) or `bad` (a start fails, or data are at risk). Every
warning and every bad verdict has a remedy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from statistics import median
from typing import Final

MIB: Final = 1 << 20
FREE_BAD_BYTES: Final = 64 * MIB
"""The reserve for a full disk (`quireDiskReserveMb`): a server does not accept messages below it."""
FREE_WARNING_RATIO: Final = 0.1
DESCRIPTORS_BAD: Final = 256
DESCRIPTORS_WARNING: Final = 4096
SYNC_WARNING_S: Final = 0.02
SYNC_BAD_S: Final = 0.5
SKEW_WARNING_S: Final = 2.0
"""Twice the resolution of the header `Date`."""
SKEW_BAD_S: Final = 60.0
CERTIFICATE_WARNING_S: Final = 14 * 86400
NAMED_MAX: Final = 5
"""Ledgers that a verdict names."""
FLEETING: Final = ("tmpfs", "ramfs")
UNSAFE: Final = frozenset(("nobarrier", "barrier=0"))
"""Options with which a sync does not empty the disk's own cache."""
NETWORKED: Final = ("nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "glusterfs", "fuse.glusterfs", "fuse.sshfs")


class Grade(Enum):
    OK = "ok"
    WARNING = "warning"
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class CheckResult:
    """Result of one check."""

    name: str
    verdict: Grade
    what: str
    remedy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """The mount that a folder is on."""

    point: str
    kind: str
    """Type of the file system, such as ext4."""
    options: frozenset[str]
    device: str
    """Major and minor number."""
    rotating: bool = False


def ok(name: str, what: str) -> CheckResult:
    return CheckResult(name, Grade.OK, what)


def warning(name: str, what: str, remedy: str) -> CheckResult:
    return CheckResult(name, Grade.WARNING, what, remedy)


def bad(name: str, what: str, remedy: str) -> CheckResult:
    return CheckResult(name, Grade.BAD, what, remedy)


def free_space(folder: str, free: int, total: int) -> CheckResult:
    """Judge the free and total bytes of a file system."""
    what = f"{folder}: {size_text(free)} of {size_text(total)} are free"
    remedy = "Free space on that disk, or use a larger one (docs/runbooks/disk-full.md)"
    if free < FREE_BAD_BYTES:
        return bad("space", what, remedy)
    return warning("space", what, remedy) if free < FREE_WARNING_RATIO * total else ok("space", what)


def usage(folder: str, free: int, total: int, *, full: float, warn: float) -> CheckResult:
    """Judge the used fraction of a ledger folder's disk by the bookie's thresholds."""
    used = 1 - free / total if total else 0.0
    what = f"{folder}: {used:.1%} of its disk are used; diskUsageThreshold is {full:.0%}"
    remedy = "Free space on that disk, or add one (docs/runbooks/disk-full.md)"
    if used >= full:
        return bad("disks", f"{what}: the bookie accepts no entries there", remedy)
    if used >= warn:
        return warning("disks", f"{what}, diskUsageWarnThreshold {warn:.0%}", remedy)
    return ok("disks", what)


def clock_of_files(newest: str, ahead_s: float) -> CheckResult:
    """Judge the newest of a bookie's files: a time in the future shows that the clock was set back."""
    if ahead_s >= SKEW_BAD_S:
        return bad(
            "clock",
            f"{newest} is from {ahead_s:.0f} s ahead of the clock: it was set back, or is wrong now",
            "Correct the clock with NTP (chrony) before the start: journals are named and ordered by it",
        )
    return ok("clock", "no file of the bookie is from the future")


def one_device(folders: Sequence[str], point: str) -> CheckResult:
    """Judge several ledger folders on one device."""
    return warning(
        "devices",
        f"{' and '.join(folders)} are on one device ({point})",
        "Give each folder a disk of its own, or use one folder: they share its speed, its room and its failure",
    )


def files_free(folder: str, free: int, total: int) -> CheckResult | None:
    """Judge the free inodes of a file system; None: it has no fixed number."""
    if total == 0:
        return None
    what = f"{folder}: {free} of {total} inodes are free"
    if free < 1000:
        return bad("space", what, "Delete small files on that disk, or make its file system with more inodes")
    return ok("space", what)


def descriptors(hard: int) -> CheckResult:
    """Judge the maximum of open files. A server raises its limit to it."""
    what = f"the limit of open files is {'unlimited' if hard < 0 else hard}"
    remedy = "Raise it: LimitNOFILE=65536 in the systemd unit, or `ulimit -Hn 65536`"
    if 0 <= hard < DESCRIPTORS_BAD:
        return bad("descriptors", what, remedy)
    return warning("descriptors", what, remedy) if 0 <= hard < DESCRIPTORS_WARNING else ok("descriptors", what)


def scrubbed(url: str, ledgers: float, logs: float) -> CheckResult:
    """Return the verdict about the damage that scrubs have found and that is not healed."""
    if not ledgers and not logs:
        return ok("scrub", f"{url} has found no damage that is left")
    what = f"{url} has {ledgers:g} ledgers with damaged entries, {logs:g} entry logs with a damaged header or map"
    remedy = f'GET {url}/api/v1/bookie/scrub names them; docs/operating.md, "Bits that change on the disk"'
    return bad("scrub", what, remedy) if ledgers else warning("scrub", what, remedy)


def limbo(url: str, ledgers: int, lost: int, lost_ids: Sequence[int], failure: str) -> CheckResult:
    """Judge a bookie that may have lost data. `ledgers`: in limbo; `lost`: those of which no member has some entry,
    `lost_ids` the first of them; `failure`: why a ledger stays in limbo, empty if that is not known.
    """
    if lost:
        shown = ", ".join(map(str, lost_ids[:NAMED_MAX])) + (
            f" and {lost - NAMED_MAX} more" if lost > NAMED_MAX else ""
        )
        return bad(
            "limbo",
            f"{url}: an entry is lost, no member has it, of {lost} ledgers: {shown}",
            "Bring back the disk of a bookie that had it; without one, keep what is left (quire shell readledger -l "
            'ID) and delete the ledger (docs/operating.md, "A bookie that lost data")',
        )
    if ledgers:
        return warning(
            "limbo",
            f"{url} has {ledgers} ledgers in limbo" + (f": {failure}" if failure else ""),
            "Wait, with their other bookies started: quire shell dataintegrity shows how far the copying is",
        )
    return ok("limbo", f"{url} has no ledgers in limbo")


def open_descriptors(of: str, open_now: float, limit: float) -> CheckResult:
    """Judge the open descriptors of a running server."""
    what = f"{open_now:.0f} of {limit:.0f} file descriptors{of} are open"
    remedy = "Raise LimitNOFILE, or look for clients that open connections without end"
    return warning("descriptors", what, remedy) if open_now > 0.8 * limit else ok("descriptors", what)


def mount(folder: str, found: Mount) -> CheckResult:
    """Judge the file system of a folder with data."""
    what = f"{folder} is on {found.point} ({found.kind}, {','.join(sorted(found.options))})"
    if "ro" in found.options:
        return bad("mount", what, "Mount it writable; a file system that became read-only has an error: see dmesg")
    if found.kind in FLEETING:
        return bad("mount", what, "Use a disk: what is here is gone after a restart of the machine")
    if found.options & UNSAFE:
        return bad(
            "mount",
            what,
            "Mount it with barriers: without them a power cut takes back what a sync has promised, unless the disk's "
            "cache is protected",
        )
    if found.kind == "overlay":
        return warning("mount", what, "Mount a volume there: a layer of a container is deleted with the container")
    if found.kind in NETWORKED:
        return warning("mount", what, "Use a local disk: over a network a sync is slow, and locks may not hold")
    if not found.options & {"noatime", "relatime"}:
        return warning("mount", what, "Mount it with noatime: each read is a write of the time of access now")
    return ok("mount", what)


def devices(journal: str, ledgers: str, journal_mount: Mount, ledgers_mount: Mount, *, standalone: bool) -> CheckResult:
    """Judge whether journal and entry logs share a disk."""
    if journal_mount.device != ledgers_mount.device:
        return ok("devices", f"{journal} and {ledgers} are on different devices")
    what = f"{journal} and {ledgers} are on one device ({journal_mount.point})"
    if journal_mount.rotating:
        return warning(
            "devices",
            f"{what}, which is reported to be a rotating disk",
            "Put the journal on a disk of its own: each flush delays its syncs. (A virtual disk may not rotate.)",
        )
    return ok("devices", what + ("" if standalone else "; a busy bookie is faster with a disk for the journal"))


def sync_speed(folder: str, seconds: Sequence[float]) -> CheckResult:
    """Judge the times of syncs of small writes."""
    middle = median(seconds)
    what = (
        f"{folder}: a sync takes {middle * 1e3:.1f} ms (median of {len(seconds)}, longest {max(seconds) * 1e3:.1f} ms)"
    )
    remedy = (
        "Use a disk with a faster sync (an SSD, or a controller with a protected cache): each receipt waits for one"
    )
    if middle >= SYNC_BAD_S:
        return bad("sync", what, remedy)
    return warning("sync", what, remedy) if middle >= SYNC_WARNING_S else ok("sync", what)


def clock(of: str, skew_s: float, resolution_s: float = 0.0) -> CheckResult:
    """Judge the difference of another clock from that of this machine; positive: the other is ahead."""
    skew_s = 0.0 if abs(skew_s) <= resolution_s else skew_s
    away = "agrees" if abs(skew_s) < 0.001 else f"is {abs(skew_s):.1f} s {'ahead' if skew_s > 0 else 'behind'}"
    what = f"the clock of {of} {away}"
    remedy = "Run NTP (chrony) on both machines: retention, TTL, tokens and certificates are judged by the clock"
    if abs(skew_s) >= SKEW_BAD_S:
        return bad("clock", what, remedy)
    return warning("clock", what, remedy) if abs(skew_s) >= SKEW_WARNING_S else ok("clock", what)


def certificate(file: str, subject: str, left_s: float, end: str) -> CheckResult:
    """Judge the time that a certificate is still valid."""
    what = f"{file}: the certificate of {subject} is valid until {end}"
    remedy = "Replace it by a rename of the new file; no restart is needed (docs/runbooks/certificates-expire.md)"
    if left_s <= 0:
        return bad("certificates", f"{file}: the certificate of {subject} has expired: {end}", remedy)
    return warning("certificates", what, remedy) if left_s < CERTIFICATE_WARNING_S else ok("certificates", what)


def port(key: str, host: str, number: int, holder: str | None) -> CheckResult:
    """Judge whether a port is free. `holder`: what has it, None if it is free; empty if that is unknown."""
    if holder is None:
        return ok("ports", f"{key}: {host}:{number} is free")
    by = f" by {holder}" if holder else ""
    return bad("ports", f"{key}: {host}:{number} is taken{by}", f"End that program, or set another {key}")


def leftovers(files: Sequence[str]) -> CheckResult:
    """Judge temporary files that a crash has left."""
    if not files:
        return ok("leftovers", "no temporary files")
    shown = ", ".join(files[:3]) + (f" and {len(files) - 3} more" if len(files) > 3 else "")
    return warning(
        "leftovers", f"temporary files of a crash: {shown}", "None is needed: the next start replaces or ignores them"
    )


def size_text(size: int) -> str:
    """Return a number of bytes for people.

    >>> size_text(3 << 30)
    '3.0 GiB'
    """
    value = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"
