"""`quire localbookie N`: a cluster on one machine, for trying things out: ZooKeeper as a child, N bookies in this
process.

    <data directory>/zookeeper            ZooKeeper's
    <data directory>/bookie-<port>/journal, ledgers
    <data directory>/config               a file for each bookie, for quire shell -localbookie

An existing cluster is used again; it is created at the first start.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import trio

from quire.metadata.clusters import exists, init_new_cluster
from quire.metadata.zookeeper.store import ZooKeeperConfig, open_store
from quire.servers.bookie.config import BOOKIE, BookieServerConfig
from quire.servers.bookie.located import located, zookeeper_config
from quire.servers.bookie.process import Ready, exit_code, serve
from quire.servers.errors import CliError
from quire.servers.local_confs import config_folder, write_confs
from quire.servers.process import closing, run_server
from quire.servers.zookeeper.process import STOP_GRACE_S, start_server, write_conf
from quire.service.errors import ConfigError
from quire.world.doors import World

HOST = "127.0.0.1"


def bookie_keys(data_dir: Path, port: int, uri: str) -> dict[str, object]:
    """Return the keys of one bookie of a local cluster."""
    folder = data_dir.absolute() / f"bookie-{port}"
    return {
        "advertisedAddress": HOST,
        "bookiePort": port,
        "journalDirectories": (str(folder / "journal"),),
        "ledgerDirectories": (str(folder / "ledgers"),),
        "allowLoopback": True,
        "metadataServiceUri": uri,
    }


def bookie_config(data_dir: Path, port: int, uri: str) -> BookieServerConfig:
    """Return the configuration of one bookie of a local cluster."""
    return BOOKIE.build(bookie_keys(data_dir, port, uri))


def metadata_uri(port: int) -> str:
    """Return the URI of a local cluster's ZooKeeper."""
    return f"zk+hierarchical://{HOST}:{port}/ledgers"


async def serve_all(
    world: World, configs: list[BookieServerConfig], store_config: ZooKeeperConfig, root: str, stop: trio.Event
) -> None:
    """Serve N bookies until `stop`; print the line when all are ready. Raises as `serve` does."""
    async with closing(await open_store(world, store_config)) as first:
        if not await exists(first, root):
            await init_new_cluster(first, root, rng=world.rng)
    ready: dict[str, Ready] = {}
    all_ready = trio.Event()

    def announce(found: Ready) -> None:
        ready[found.config.id] = found
        if len(ready) == len(configs):
            all_ready.set()

    async def one(config: BookieServerConfig) -> None:
        # A session for each, the same as on separate machines.
        async with closing(await open_store(world, store_config)) as store:
            await serve(world, config, store, ready=announce, stop=stop)

    async with trio.open_nursery() as nursery:
        for config in configs:
            nursery.start_soon(one, config, name=f"bookie {config.id}")
        nursery.start_soon(_print_ready, all_ready, configs, name="ready")
        await stop.wait()
        all_ready.set()


async def _print_ready(all_ready: trio.Event, configs: list[BookieServerConfig]) -> None:
    await all_ready.wait()
    ids = ",".join(config.id for config in configs)
    data = Path(configs[0].bookie.journal_directory).parent.parent
    print(f"ready metadata={configs[0].metadata.metadata_uri} bookies={ids} data={data} pid={os.getpid()}", flush=True)


def run_localbookie(
    count: int, data_dir: Path, *, port: int, zookeeper_port: int, log_level: str, jars: Path | None = None
) -> int:
    """The command. Returns the exit code, as `quire bookie` does. `jars`: ZooKeeper's, None for those in pyspark."""
    from quire.service import log as logging
    from quire.world.real import real_world

    zookeeper: subprocess.Popen[bytes] | None = None
    try:
        logging.configure(log_level, sys.stderr)
        if count < 1:
            raise ConfigError(f"{count} bookies: at least 1")
        uri = metadata_uri(zookeeper_port)
        configs = [bookie_config(data_dir, port + index, uri) for index in range(count)]
        store_config, root = zookeeper_config(configs[0])
        configs = [located(config, root) for config in configs]
        keys = [(config.bookie.id, bookie_keys(data_dir, config.bookie.port, uri)) for config in configs]
        write_confs(config_folder(data_dir), uri, keys)
        conf = write_conf(data_dir / "zookeeper", host=HOST, port=zookeeper_port)
        zookeeper = start_server(conf, log_level="warn", jars=jars)
    except (ConfigError, ValueError) as error:
        print(f"quire localbookie: {error}", file=sys.stderr)
        return 1
    except (CliError, OSError) as error:
        print(f"quire localbookie: {error}", file=sys.stderr)
        return 2
    world = real_world()
    logging.configure(log_level, sys.stderr, wall_ms=world.clock.wall_ms)

    async def main(stop: trio.Event) -> None:
        await serve_all(world, configs, store_config, root, stop)

    try:
        return run_server("localbookie", main, exit_code)
    finally:
        _end(zookeeper)


def _end(zookeeper: subprocess.Popen[bytes]) -> None:
    zookeeper.terminate()
    try:
        zookeeper.wait(STOP_GRACE_S)
    except subprocess.TimeoutExpired:
        zookeeper.kill()
        zookeeper.wait()
