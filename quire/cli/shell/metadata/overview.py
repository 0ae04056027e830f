"""endpointinfo, clusterinfo: what bookies registered, and the state of the cluster in numbers."""

from __future__ import annotations

import json
from contextlib import aclosing
from typing import Any

from autorecovery.auditing.election import read_auditor
from autorecovery.marks.underreplication import UnderreplicatedLedgers
from quire.cli.shell.arguments import Arguments, CommandOption, OptionKind
from quire.cli.shell.command import Command
from quire.cli.shell.context import Shell
from quire.cli.shell.errors import FAILED, ShellError
from quire.cli.shell.metadata.bookies import known_bookies
from quire.metadata import bookies
from quire.metadata.bookies import check_bookie_id
from quire.metadata.store import MetadataStore


async def endpoint_info(shell: Shell, arguments: Arguments) -> int:
    bookie_id = check_bookie_id(arguments.required("bookieid"))
    output = shell.output
    async with shell.store() as store:
        info = await bookies.service_info(store, bookie_id, root=shell.root)
        if info is None:
            known = await known_bookies(store, shell.root)
            if bookie_id not in known:
                raise ShellError(f"Bookie {bookie_id} does not exist, only [{', '.join(known)}]")
    output.line(f"BookiedId: {bookie_id}")
    if info is None or not info.endpoints:
        output.line("Bookie did not publish any endpoint info. Maybe it is down")
        output.value(bookieId=bookie_id, properties={}, endpoints=[])
        return FAILED
    if info.properties:
        output.line("Properties")
        for name, value in info.properties:
            output.line(f"{name} : {value}")
    endpoints: list[dict[str, Any]] = []
    for each in info.endpoints:
        output.line(f"Endpoint: {each.id}")
        output.line(f"Protocol: {each.protocol}")
        output.line(f"Address: {each.host} : {each.port}")
        output.line(f"Auth: [{', '.join(each.auth)}]")
        output.line(f"Extensions: [{', '.join(each.extensions)}]")
        endpoints.append(
            {
                "id": each.id,
                "protocol": each.protocol,
                "host": each.host,
                "port": each.port,
                "auth": list(each.auth),
                "extensions": list(each.extensions),
            }
        )
    output.value(bookieId=bookie_id, properties=dict(info.properties), endpoints=endpoints)
    return 0


async def cluster_info(shell: Shell, arguments: Arguments) -> int:
    async with shell.store() as store:
        found = await describe_cluster(shell, store)
    shell.output.line("--------- Cluster Info ---------")
    # The original prints its JSON over several lines, and so does the text output here.
    shell.output.line(json.dumps(found, indent=2).replace('": ', '" : '))
    shell.output.value(**found)
    return 0


async def describe_cluster(shell: Shell, store: MetadataStore) -> dict[str, Any]:
    """Return the fields of the original's cluster_info."""
    marks = UnderreplicatedLedgers(
        store, root=shell.root, rng=shell.world.rng, wall_ms=shell.world.clock.wall_ms, owner="shell"
    )
    underreplicated = False
    async with aclosing(marks.list()) as listed:
        async for _ in listed:
            underreplicated = True
            break
    auditor = await read_auditor(store, shell.root)
    writable = await bookies.available(store, root=shell.root)
    read_only = await bookies.readonly(store, root=shell.root)
    known = set(await known_bookies(store, shell.root)) | set(writable) | set(read_only)
    return {
        "auditorElected": auditor is not None,
        "auditorId": auditor or "",
        "clusterUnderReplicated": underreplicated,
        "ledgerReplicationEnabled": await marks.is_enabled(),
        "totalBookiesCount": len(known),
        "writableBookiesCount": len(writable),
        "readonlyBookiesCount": len(read_only),
        "unavailableBookiesCount": len(known) - len(set(writable) | set(read_only)),
    }


COMMANDS = (
    Command(
        name="endpointinfo",
        help="Print the addresses that a bookie has registered.",
        run=endpoint_info,
        options=(
            CommandOption(name="bookieid", short="b", kind=OptionKind.TEXT, required=True, help="Id of the bookie."),
        ),
    ),
    Command(
        name="clusterinfo",
        help="Print the number of bookies, the auditor, and the state of auto recovery.",
        run=cluster_info,
    ),
)
