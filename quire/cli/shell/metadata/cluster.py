"""initnewcluster, metaformat, nukeexistingcluster, whatisinstanceid: a cluster's metadata as a whole.

A command that would lose data is refused while bookies are running, and asks for confirmation, unless told not to.
"""

from __future__ import annotations

from typing import Final

from autorecovery.auditing.overview import running_bookies
from quire.cli.shell.arguments import Arguments, CommandOption, OptionKind
from quire.cli.shell.command import Command
from quire.cli.shell.context import Shell
from quire.cli.shell.errors import RefusedError
from quire.metadata import clusters
from quire.metadata.errors import ClusterRefusedError, NoNodeError
from quire.metadata.layouts import HIERARCHICAL, LedgerLayout
from quire.metadata.ledgers import read_instance_id, read_layout
from quire.metadata.store import MetadataStore

NAMED_MAX: Final = 10
"""Maximum number of bookies named in a refusal."""


async def init_new_cluster(shell: Shell, arguments: Arguments) -> int:
    async with shell.store() as store:
        try:
            instance_id = await clusters.init_new_cluster(
                store, shell.root, rng=shell.world.rng, layout=shell.config.layout or HIERARCHICAL
            )
        except ClusterRefusedError as error:
            raise RefusedError(str(error)) from error
    uri = shell.config.metadata_service
    text = f"Made a new cluster. Metadata Service Uri: {uri} InstanceId: {instance_id}"
    shell.output.tell(text, metadataServiceUri=uri, instanceId=instance_id)
    return 0


async def meta_format(shell: Shell, arguments: Arguments) -> int:
    force = arguments.has("force")
    async with shell.store() as store:
        root = shell.root
        if await clusters.exists(store, root):
            running = await running_bookies(store, root)
            if running and not force:
                raise RefusedError(
                    f"the cluster at {root} has bookies running: {_named(running)}. Stop them, or add -force: "
                    "they would "
                    "continue with ledgers that are no longer in the metadata"
                )
            if arguments.has("nonInteractive"):
                if not force:
                    raise RefusedError(f"a cluster exists at {root}: -nonInteractive formats it only with -force")
            elif not shell.ask(f"A cluster exists at {root}. Delete all its ledgers and cookies?"):
                raise RefusedError("not confirmed; nothing was changed")
        with shell.output.progress("formatting"):
            instance_id = await clusters.format_cluster(
                store, root, rng=shell.world.rng, layout=shell.config.layout or await _layout(store, root)
            )
    uri = shell.config.metadata_service
    text = f"Formatted. Metadata Service Uri: {uri} InstanceId: {instance_id}"
    shell.output.tell(text, metadataServiceUri=uri, instanceId=instance_id)
    return 0


async def nuke_existing_cluster(shell: Shell, arguments: Arguments) -> int:
    given, instance_id = arguments.text("zkledgersrootpath"), arguments.text("instanceid")
    force = arguments.has("force")
    if force == (instance_id is not None):
        raise RefusedError("give either -instanceid or -force, not both")
    root = shell.root
    if given != root:
        raise RefusedError(f"-zkledgersrootpath is {given or 'missing'}, the configuration says {root}")
    async with shell.store() as store:
        with shell.output.progress("deleting"):
            try:
                await clusters.nuke_cluster(store, root, instance_id=instance_id, force=force)
            except ClusterRefusedError as error:
                raise RefusedError(str(error)) from error
            except NoNodeError:
                if await clusters.exists(store, root):
                    raise
                shell.output.tell(f"There is no cluster at {root}", root=root, deleted=False)
                return 0
    shell.output.tell(f"Deleted the cluster at {root}", root=root, deleted=True)
    return 0


async def what_is_instance_id(shell: Shell, arguments: Arguments) -> int:
    async with shell.store() as store:
        instance_id = await read_instance_id(store, shell.root)
    uri = shell.config.metadata_service
    text = f"Metadata Service Uri: {uri} InstanceId: {instance_id}"
    shell.output.tell(text, metadataServiceUri=uri, instanceId=instance_id)
    return 0


async def _layout(store: MetadataStore, root: str) -> LedgerLayout:
    """Return the layout of the cluster, or the default. Raises UnsupportedLayoutError."""
    try:
        return await read_layout(store, root)
    except NoNodeError:
        return HIERARCHICAL


def _named(names: list[str]) -> str:
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return ", ".join(names[:NAMED_MAX]) + more


COMMANDS = (
    Command(
        name="initnewcluster",
        help="Create the metadata of a new cluster. The parent of the ledgers' root must exist.",
        run=init_new_cluster,
    ),
    Command(
        name="metaformat",
        help="Format the cluster's metadata: create it, or delete every ledger and cookie of it.",
        run=meta_format,
        options=(
            CommandOption(
                name="nonInteractive", short="n", help="Do not ask; formats an existing cluster only with -force."
            ),
            CommandOption(
                name="force", short="f", help="Format an existing cluster, and even while bookies are running."
            ),
        ),
    ),
    Command(
        name="nukeexistingcluster",
        help="Delete all of a cluster's metadata. Refused while bookies are running.",
        run=nuke_existing_cluster,
        options=(
            CommandOption(
                name="zkledgersrootpath",
                short="p",
                kind=OptionKind.TEXT,
                help="Root of the ledgers; must be the same as in the configuration.",
            ),
            CommandOption(name="instanceid", short="i", kind=OptionKind.TEXT, help="Instance id of the cluster."),
            CommandOption(
                name="force", short="f", help="Delete the cluster whatever its instance id; replaces -instanceid."
            ),
        ),
    ),
    Command(
        name="whatisinstanceid",
        help="Print the instance id of the cluster.",
        run=what_is_instance_id,
    ),
)
