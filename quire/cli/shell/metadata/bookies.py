"""listbookies, bookieinfo: the bookies of a cluster, and their free space."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import Any, Final

import trio

from autorecovery.auditing.overview import known_bookies
from quire.cli.shell.arguments import Arguments, CommandOption
from quire.cli.shell.command import Command
from quire.cli.shell.context import Shell
from quire.ledger.bookies.pool import BookieClient
from quire.ledger.errors import BookieUnavailableError, rc_name
from quire.metadata import bookies
from quire.metadata.store import MetadataStore
from quire.wire.bookkeeper import v3
from quire.wire.bookkeeper.v2 import Rc

NAME_LOOKUP_S: Final = 2.0
INFO_TIMEOUT_S: Final = 10.0
UNKNOWN: Final = "UNKNOWN"
_UNITS: Final = ("", "KB", "MB", "GB", "TB")


async def list_bookies(shell: Shell, arguments: Arguments) -> int:
    kind = arguments.one_of("readwrite", "readonly", "all")
    async with shell.store() as store:
        if kind == "readwrite":
            title, found = "ReadWrite Bookies :", await bookies.available(store, root=shell.root)
        elif kind == "readonly":
            title, found = "Readonly Bookies :", await bookies.readonly(store, root=shell.root)
        else:
            title, found = "All Bookies :", await known_bookies(store, shell.root)
        shell.output.line(title if found else "No bookie exists!")
        for bookie_id in found:
            where = await whereabouts(shell, store, bookie_id)
            shell.output.tell(where_text(where), **where)
    return 0


async def bookie_info(shell: Shell, arguments: Arguments) -> int:
    async with shell.store() as store, shell.bookies(store, timeout_s=INFO_TIMEOUT_S) as client:
        found = [*await bookies.available(store, root=shell.root), *await bookies.readonly(store, root=shell.root)]
        sizes = await ask_sizes(client, found)
        for bookie_id, size in sizes.items():
            if isinstance(size, str):
                shell.output.note(f"bookie {bookie_id}: {size}")
        known = {bookie_id: size for bookie_id, size in sizes.items() if not isinstance(size, str)}
        if not known:
            shell.output.line("No bookie told its sizes")
            return 0
        shell.output.line("Free disk space info:")
        for bookie_id, (free, total) in known.items():
            where = await whereabouts(shell, store, bookie_id)
            text = f"{where_text(where)}: \tFree: {size_text(free)}\tTotal: {size_text(total)}"
            shell.output.tell(text, **where, free=free, total=total)
    free, total = (sum(column) for column in zip(*known.values(), strict=True))
    shell.output.line(f"Total free disk space in the cluster:\t{size_text(free)}")
    shell.output.line(f"Total disk capacity in the cluster:\t{size_text(total)}")
    shell.output.value(clusterFree=free, clusterTotal=total)
    return 0


async def ask_sizes(client: BookieClient, bookie_ids: Sequence[str]) -> dict[str, tuple[int, int] | str]:
    """Return free and total bytes of each bookie, or the error that prevented it."""
    asked: dict[str, Any] = {}
    found: dict[str, tuple[int, int] | str] = {}
    for bookie_id in bookie_ids:
        try:
            asked[bookie_id] = client.connection(bookie_id).bookie_info(v3.TOTAL_DISK_CAPACITY | v3.FREE_DISK_SPACE)
        except BookieUnavailableError as error:
            found[bookie_id] = str(error)
    for bookie_id, answer in asked.items():
        try:
            body = await answer.wait()
        except BookieUnavailableError as error:
            found[bookie_id] = str(error)
            continue
        if isinstance(body, v3.BookieInfo) and body.rc == Rc.OK:
            found[bookie_id] = (body.free or 0, body.total or 0)
        else:
            found[bookie_id] = f"answered {rc_name(body.rc)}"
    return {bookie_id: found[bookie_id] for bookie_id in bookie_ids}


async def whereabouts(shell: Shell, store: MetadataStore, bookie_id: str) -> dict[str, Any]:
    """Return id, address, port and host name of a bookie, for JSON; None where unknown."""
    endpoint = await shell.endpoint(store, bookie_id)
    if endpoint is None:
        return {"bookieId": bookie_id, "ip": None, "port": None, "hostname": None}
    ip, name = await _names(endpoint.host, endpoint.port)
    return {"bookieId": bookie_id, "ip": ip, "port": endpoint.port, "hostname": name}


def where_text(where: dict[str, Any]) -> str:
    """Return the same in the original's text form.

    >>> where_text({"bookieId": "b:1", "ip": None, "port": None, "hostname": None})
    'BookieID:b:1, IP:UNKNOWN, Port:0, Hostname:UNKNOWN'
    """
    ip, port, name = where["ip"] or UNKNOWN, where["port"] or 0, where["hostname"] or UNKNOWN
    return f"BookieID:{where['bookieId']}, IP:{ip}, Port:{port}, Hostname:{name}"


async def _names(host: str, port: int) -> tuple[str | None, str]:
    """Return the address of a host, None if it has none; and its name, the address itself if it has none."""
    ip: str | None = None
    name = host
    with trio.move_on_after(NAME_LOOKUP_S):
        try:
            ip = str(ipaddress.ip_address(host))
            name = (await trio.socket.getnameinfo((host, port), 0))[0]
        except ValueError:
            try:
                ip = str((await trio.socket.getaddrinfo(host, port))[0][4][0])
            except OSError:
                ip = None
        except OSError:
            name = host
    return ip, name


def size_text(size: int) -> str:
    """Return bytes, and their number in units of powers of a thousand, cut to three digits.

    >>> size_text(123), size_text(1_234_567), size_text(64_000_000_000_000_000)
    ('123', '1234567(1.234MB)', '64000000000000000(64000TB)')
    """
    unit = 0
    while size >= 1000 ** (unit + 1) and unit < len(_UNITS) - 1:
        unit += 1
    if unit == 0:
        return str(size)
    whole, thousandths = divmod(size * 1000 // 1000**unit, 1000)
    fraction = f".{thousandths:03d}".rstrip("0").rstrip(".")
    return f"{size}({whole}{fraction}{_UNITS[unit]})"


COMMANDS = (
    Command(
        name="listbookies",
        help="List the bookies that are running writable or read-only, or all that have a cookie.",
        run=list_bookies,
        options=(
            CommandOption(name="readwrite", short="rw", help="List the bookies that accept entries."),
            CommandOption(name="readonly", short="ro", help="List the bookies that only serve reads."),
            CommandOption(name="all", short="a", help="List all bookies that have a cookie, running or not."),
            CommandOption(
                name="hostnames", short="h", help="No effect, as in the original: host names are always printed."
            ),
        ),
    ),
    Command(
        name="bookieinfo",
        help="Ask every running bookie for its free and total disk space.",
        run=bookie_info,
    ),
)
