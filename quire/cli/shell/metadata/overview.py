"""endpointinfo, clusterinfo: what bookies registered, and the state of the cluster in numbers."""

from __future__ import annotations

import json
from typing import Any

from autorecovery.auditing.overview import describe_cluster, known_bookies
from quire.cli.shell.arguments import Arguments, CommandOption, OptionKind
from quire.cli.shell.command import Command
from quire.cli.shell.context import Shell
from quire.cli.shell.errors import FAILED, ShellError
from quire.metadata import bookies
from quire.metadata.bookies import check_bookie_id


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
        found = await describe_cluster(shell.world, store, shell.root)
    shell.output.line("--------- Cluster Info ---------")
    # The original prints its JSON over several lines, and so does the text output here.
    shell.output.line(json.dumps(found, indent=2).replace('": ', '" : '))
    shell.output.value(**found)
    return 0


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
