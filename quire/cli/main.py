"""`quire ...`: the command line. Each command imports its modules when it runs, so that `--help` is quick and a server
loads only the modules that it uses."""

from __future__ import annotations

import atexit
import gc
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quire.cli.checkup.app import doctor
from quire.cli.config import app as config_app
from quire.cli.contents import CONTENTS
from quire.cli.lazy import LazyCommand, command_of, lazy_group
from quire.cli.messages.commands import add_to as add_messages
from quire.cli.perf.commands import add_to as add_perf
from quire.cli.pipelines import pipeline_command
from quire.cli.salvage.app import salvage
from quire.cli.sql.commands import add_to as add_sql
from quire.cli.standard_streams import naming_full_disks, open_missing
from quire.cli.tokens import app as tokens_app
from quire.cli.upgrade.app import upgrade

if TYPE_CHECKING:
    import trio

    from quire.servers.addresses import Addresses
    from quire.servers.standalone.config import StandaloneConfig

DEFAULT_CONF = Path("conf/standalone.conf")
YOUNG_OBJECTS_MAX = 200_000
"""Collector threshold while a command is imported, above the objects of a whole server: imports make hardly any
garbage. Servers then set thresholds of their own (quire.servers.process)."""


def _admin() -> Any:
    from quire.cli.admin.app import admin_app

    return command_of(admin_app())


def _operations() -> Any:
    from quire.cli.operations.__main__ import command
    from quire.service import log

    log.configure("error", sys.stderr)
    return command()


def _top() -> Any:
    from quire.cli.top.commands import top_app

    return command_of(top_app())


app = typer.Typer(
    name="quire",
    cls=lazy_group(
        {
            "admin": LazyCommand(CONTENTS["Administration"]["admin"], _admin),
            "pipeline": LazyCommand(CONTENTS["Messages"]["pipeline"], pipeline_command),
            "top": LazyCommand(CONTENTS["Administration"]["top"], _top),
            "operations": LazyCommand(CONTENTS["Maintenance"]["operations"], _operations),
        },
        CONTENTS,
    ),
    help="A durable topic broker with Pulsar's protocol on a bookie tier with BookKeeper's formats.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.add_typer(config_app, name="config")
app.add_typer(tokens_app, name="tokens")
add_messages(app)
add_sql(app)
add_perf(app)


@app.callback()
def quire() -> None:
    """A durable topic broker with Pulsar's protocol on a bookie tier with BookKeeper's formats."""


@app.command()
def standalone(
    data_dir: Annotated[Path, typer.Option(help="Directory of all data.")] = Path("data"),
    conf: Annotated[
        Path | None, typer.Option(help="Configuration file.", show_default=f"{DEFAULT_CONF} if it exists")
    ] = None,
    bind_address: Annotated[str | None, typer.Option(help="Address to listen on (bindAddress).")] = None,
    advertised_address: Annotated[
        str | None, typer.Option(help="Host that clients on other machines connect to (advertisedAddress).")
    ] = None,
    broker_port: Annotated[
        int | None,
        typer.Option(
            "--port", "--broker-port", help="Port of the binary protocol (brokerServicePort); 0 for a free one."
        ),
    ] = None,
    web_port: Annotated[
        int | None, typer.Option(help="Port of status, health, metrics (webServicePort); 0 for a free one.")
    ] = None,
    accept_unsupported_policies: Annotated[
        bool,
        typer.Option(
            "--accept-unsupported-policies",
            help="Load topics whose stored policies are not obeyed (quireAcceptUnsupportedPolicies).",
        ),
    ] = False,
    http: Annotated[bool, typer.Option(help="Serve the web port.")] = True,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
) -> None:
    """Run a whole server in this process: broker, bookie and metadata, durable in one directory.

    Prints a line "ready broker=... web=... data=..." when it serves. SIGTERM and Ctrl-C stop it.
    """
    overrides = {
        "bindAddress": bind_address,
        "advertisedAddress": advertised_address,
        "brokerServicePort": broker_port,
        "webServicePort": web_port,
        "quireAcceptUnsupportedPolicies": accept_unsupported_policies or None,
    }
    given = {name: value for name, value in overrides.items() if value is not None}
    raise SystemExit(_run_standalone(str(data_dir.absolute()), conf, given, http, log_level))


@app.command()
def zookeeper(
    data_dir: Annotated[Path, typer.Option(help="Data directory.")] = Path("data/zookeeper"),
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "0.0.0.0",
    port: Annotated[int, typer.Option(help="Port for clients.")] = 2181,
    conf: Annotated[
        Path | None, typer.Option(help="A zoo.cfg, which replaces the other options and may configure an ensemble.")
    ] = None,
    log_level: Annotated[str, typer.Option(help="ZooKeeper's log level: debug, info, warn or error.")] = "warn",
    jars: Annotated[
        Path | None,
        typer.Option(help="Folder of ZooKeeper's jars.", show_default="the jars in pyspark, if it is installed"),
    ] = None,
    fetch_jars: Annotated[
        bool,
        typer.Option("--fetch-jars", help="Download missing jars (4 MB) into the folder --jars first, with Maven."),
    ] = False,
) -> None:
    """Run an original ZooKeeper server.

    It needs Java, and ZooKeeper's jars: from --jars, or from the extra quire-broker\\[zookeeper].

    Prints a line "ready zookeeper=... pid=..." when it serves. SIGTERM and Ctrl-C stop it.
    """
    from quire.servers.zookeeper.process import run_zookeeper

    raise SystemExit(
        run_zookeeper(data_dir, host=host, port=port, conf=conf, log_level=log_level, jars=jars, fetch=fetch_jars)
    )


@app.command()
def bookie(
    conf: Annotated[Path | None, typer.Option(help="A bk_server.conf, BookKeeper's or Quire's.")] = None,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
) -> None:
    """Run one bookie of a cluster on ZooKeeper.

    Prints a line "ready bookie=... address=... pid=..." when it serves. SIGTERM and Ctrl-C stop it.
    """
    from quire.servers.bookie.process import run_bookie

    raise SystemExit(run_bookie(conf, log_level))


@app.command()
def broker(
    conf: Annotated[
        Path | None,
        typer.Option(help="A broker.conf, Pulsar's or Quire's.", show_default="conf/broker.conf if it exists"),
    ] = None,
    accept_unsupported_policies: Annotated[
        bool,
        typer.Option(
            "--accept-unsupported-policies",
            help="Load topics whose stored policies are not obeyed (quireAcceptUnsupportedPolicies).",
        ),
    ] = False,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
) -> None:
    """Run one broker of a cluster on ZooKeeper and bookies.

    Prints a line "ready broker=... web=... pid=..." when it serves. SIGTERM and Ctrl-C stop it.
    """
    from quire.servers.broker.process import run_broker

    raise SystemExit(run_broker(conf, log_level, accept_unsupported_policies=accept_unsupported_policies))


@app.command()
def autorecovery(
    conf: Annotated[Path | None, typer.Option(help="A bk_server.conf, BookKeeper's or Quire's.")] = None,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
) -> None:
    """Run auto recovery: find ledgers with missing copies, and restore the copies.

    Prints a line "ready autorecovery=... pid=..." when it works. SIGTERM and Ctrl-C stop it.
    """
    from quire.servers.autorecovery.process import run_autorecovery_command

    raise SystemExit(run_autorecovery_command(conf, log_level))


@app.command("initialize-cluster-metadata")
def initialize_cluster_metadata(
    cluster: Annotated[str, typer.Option("--cluster", "-c", help="Name of the cluster.")],
    metadata_store: Annotated[
        str,
        typer.Option(
            "--metadata-store",
            "-md",
            "--zookeeper",
            "-zk",
            help="Metadata store of the cluster: zk:host:2181,host:2181/chroot.",
        ),
    ],
    web_service_url: Annotated[
        str, typer.Option("--web-service-url", "-uw", help="URL of the admin REST: http://host:8080.")
    ],
    broker_service_url: Annotated[
        str, typer.Option("--broker-service-url", "-ub", help="URL for clients: pulsar://host:6650.")
    ] = "",
    web_service_url_tls: Annotated[
        str, typer.Option("--web-service-url-tls", "-tw", help="As --web-service-url, with TLS.")
    ] = "",
    broker_service_url_tls: Annotated[
        str, typer.Option("--broker-service-url-tls", "-tb", help="As --broker-service-url, with TLS.")
    ] = "",
    configuration_metadata_store: Annotated[
        str,
        typer.Option(
            "--configuration-metadata-store",
            "-cms",
            "--configuration-store",
            "-cs",
            help="Must be the same as --metadata-store, which is the default.",
        ),
    ] = "",
    metadata_store_config_path: Annotated[
        Path | None,
        typer.Option(
            "--metadata-store-config-path",
            "-mscp",
            help="A broker.conf, or a part of one, with the keys of the connection to ZooKeeper: zkEnableSecurity, "
            "quireZooKeeperAuth, quireZooKeeperTls and its files.",
        ),
    ] = None,
    existing_bk_metadata_service_uri: Annotated[
        str,
        typer.Option(
            "--existing-bk-metadata-service-uri",
            "--bookkeeper-metadata-service-uri",
            help="URI of existing bookies. If given, no metadata for bookies is created.",
        ),
    ] = "",
    default_namespace_bundle_number: Annotated[
        int, typer.Option(help="Number of bundles of the first two namespaces.")
    ] = 16,
    initial_num_transaction_coordinators: Annotated[
        int, typer.Option(help="Number of partitions of Pulsar's topic for transaction coordinators.")
    ] = 16,
    initial_num_stream_storage_containers: Annotated[
        int, typer.Option(help="Number of containers of BookKeeper's stream storage; 0 for none.")
    ] = 16,
    zookeeper_session_timeout_ms: Annotated[
        int, typer.Option(help="Maximum milliseconds to wait for ZooKeeper.")
    ] = 30_000,
) -> None:
    """Create the metadata of a new cluster: tenants, namespaces, nodes for bookies. Existing nodes are kept."""
    from quire.metadata.zookeeper.config import ConnectString
    from quire.servers.initialize_cluster import NewCluster, own_address, run_initialize, servers_of
    from quire.service import log

    def new_cluster(where: ConnectString) -> NewCluster:
        return NewCluster(
            name=cluster,
            web_url=web_service_url,
            web_url_tls=web_service_url_tls,
            broker_url=broker_service_url,
            broker_url_tls=broker_service_url_tls,
            coordinators=initial_num_transaction_coordinators,
            storage_containers=initial_num_stream_storage_containers,
            bundles=default_namespace_bundle_number,
            servers=servers_of(where),
            chroot=where.chroot,
            own_address=own_address(),
            existing_bookies=bool(existing_bk_metadata_service_uri),
        )

    log.configure("warning", sys.stderr)
    raise SystemExit(
        run_initialize(
            metadata_store=metadata_store,
            configuration_store=configuration_metadata_store,
            existing_bookies=existing_bk_metadata_service_uri,
            store_conf=metadata_store_config_path,
            session_timeout_ms=zookeeper_session_timeout_ms,
            cluster=new_cluster,
        )
    )


@app.command()
def localbookie(
    count: Annotated[int, typer.Argument(help="Number of bookies.")] = 3,
    data_dir: Annotated[Path, typer.Option(help="Directory of all data.")] = Path("data/localbookie"),
    port: Annotated[int, typer.Option(help="Port of the first bookie; the others have the next ports.")] = 3181,
    zookeeper_port: Annotated[int, typer.Option(help="Port of ZooKeeper.")] = 2181,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
    jars: Annotated[
        Path | None,
        typer.Option(help="Folder of ZooKeeper's jars.", show_default="the jars in pyspark, if it is installed"),
    ] = None,
) -> None:
    """Run a cluster on this machine: ZooKeeper and some bookies.

    It needs Java, and ZooKeeper's jars: from --jars, or from the extra quire-broker\\[zookeeper].

    Prints a line "ready metadata=... bookies=... data=... pid=..." when all serve. SIGTERM and Ctrl-C stop it.
    """
    from quire.servers.localbookie import run_localbookie

    raise SystemExit(
        run_localbookie(count, data_dir, port=port, zookeeper_port=zookeeper_port, log_level=log_level, jars=jars)
    )


app.command("doctor")(doctor)
app.command("salvage")(salvage)
app.command("upgrade")(upgrade)


@app.command(
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []},
    add_help_option=False,
)
def shell(context: typer.Context) -> None:
    """Inspect and change a cluster and its bookies, with the commands of BookKeeper's shell.

    "quire shell help" lists them.
    """
    from quire.cli.shell.main import run_shell
    from quire.service import log

    log.configure("error", sys.stderr)
    raise SystemExit(run_shell(context.args))


@app.command(
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []},
    add_help_option=False,
)
def daemon(context: typer.Context) -> None:
    """Start, stop or examine a bookie in the background: start, stop, status.

    "quire daemon help" prints the variables it reads.
    """
    from quire.cli.daemon.__main__ import run

    raise SystemExit(run(context.args, os.environ, sys.stdout, sys.stderr))


@app.command()
def version() -> None:
    """Print the version."""
    from quire.distribution import installed_version

    print(f"quire {installed_version()}")


def _run_standalone(data_dir: str, conf: Path | None, overrides: dict[str, Any], http: bool, log_level: str) -> int:
    from quire.service import log
    from quire.service.errors import ConfigError

    try:
        log.configure(log_level, sys.stderr)
        config = _load_config(conf, overrides)
        levels = log.parse_levels(config.log.levels)
    except (ConfigError, ValueError) as error:
        print(f"quire standalone: {error}", file=sys.stderr)
        return 2

    from quire.servers.process import hold_collector, release_collector, run_server
    from quire.servers.standalone.process import run_standalone
    from quire.world.real import real_world

    world = real_world()
    log.configure(log_level, sys.stderr, wall_ms=world.clock.wall_ms, levels=levels)

    def ready(addresses: Addresses) -> None:
        from quire.servers.addresses import ready_line

        line = ready_line(addresses, data=data_dir, pid=os.getpid(), start_s=_seconds_since_process_start())
        print(line, flush=True)
        release_collector()

    async def serve(stop: trio.Event) -> None:
        hold_collector()
        await run_standalone(world, config, data_dir=data_dir, ready=ready, stop=stop, http=http)

    remedy = f"`quire doctor --data-dir {data_dir}` lists all damage and the remedies"
    return run_server("standalone", serve, remedy=remedy)


def _load_config(conf: Path | None, overrides: dict[str, Any]) -> StandaloneConfig:
    from quire.servers.standalone.config import STANDALONE

    return STANDALONE.load(DEFAULT_CONF if conf is None and DEFAULT_CONF.exists() else conf, overrides)


def _seconds_since_process_start() -> float:
    """Return the seconds since the kernel made this process, or since this module was loaded where that is unknown."""
    try:
        started_ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        return time.clock_gettime(time.CLOCK_BOOTTIME) - started_ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, AttributeError, ValueError):
        return time.perf_counter() - _LOADED_S


_LOADED_S = time.perf_counter()


def _collect_nothing() -> None:
    """Skip the last collections of garbage: of a server with a hundred thousand topics they would take many seconds."""
    gc.disable()
    gc.freeze()


def main() -> None:
    """Run the console script."""
    gc.set_threshold(YOUNG_OBJECTS_MAX)
    atexit.register(_collect_nothing)
    open_missing()
    with naming_full_disks():
        app()


if __name__ == "__main__":
    main()
