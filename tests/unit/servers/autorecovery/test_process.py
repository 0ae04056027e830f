"""`quire autorecovery`: the keys that it reads from a bk_server.conf, and its ends."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import trio

from autorecovery.config import AutoRecoveryConfig
from autorecovery.errors import IncompatibleUnderreplicationError
from quire.metadata.errors import MetadataUnavailableError, SessionExpiredError
from quire.metadata.local.memory import MemoryStore, MemoryTree
from quire.metadata.zookeeper.config import SessionExpiredPolicy
from quire.servers.autorecovery.config import AUTORECOVERY
from quire.servers.autorecovery.process import exit_code, serve_autorecovery
from quire.servers.errors import InternalError, PortError
from quire.servers.process import ending_at_faults
from quire.service.errors import ConfigError
from quire.world.doors import World
from quire.world.unwrap import leaves

ROOT = Path(__file__).resolve().parents[4]


def conf(folder: Path, text: str) -> Path:
    path = folder / "bk_server.conf"
    path.write_text(text)
    return path


def test_the_bookies_own_file_will_do(tmp_path: Path) -> None:
    config = AUTORECOVERY.load(ROOT / "conf" / "bk_server.conf")
    assert config.metadata.connect_string.ledgers_root == "/ledgers"
    assert config.recovery.open_ledger_grace_period_ms == 30_000
    text = (
        "metadataServiceUri=zk+hierarchical://zk1:2181/bk/ledgers\nbookieId=b7\nzkTimeout=3000\nlostBookieRecoveryDelay=60\n"
        "replicationRateByBytes=1000\npasswd=geheim\ndigestType=CRC32C\nzookeeperSessionExpiredPolicy=shutdown\n"
        "ledgerDirectories=/a,/b\njournalWriteData=false\nnumReadWorkerThreads=many\nautoRecoveryDaemonEnabled=true\n"
    )
    config = AUTORECOVERY.load(conf(tmp_path, text))
    assert config.name == "b7"
    settings = config.metadata.zookeeper_of_server
    assert settings.servers == (("zk1", 2181),)
    assert (settings.session_timeout_s, settings.session_expired_policy) == (3.0, SessionExpiredPolicy.SHUTDOWN)
    assert (config.recovery.lost_bookie_recovery_delay_s, config.recovery.rate_bytes) == (60, 1000)
    assert (config.recovery.password, config.recovery.digest_type) == ("geheim", "CRC32C")


def test_without_a_bookie_id_the_name_is_that_of_the_bookie_on_this_host(tmp_path: Path) -> None:
    config = AUTORECOVERY.load(conf(tmp_path, "advertisedAddress=h1\nbookiePort=3282\n"))
    assert config.name == "h1:3282"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("openLedgerReplicationGracePeriod=5\n", "openLedgerReplicationGracePeriod"),
        ("rwRereplicateBackoffMs=0\n", "rwRereplicateBackoffMs"),
        ("auditorLedgerVerificationPercentage=101\n", "auditorLedgerVerificationPercentage"),
        ("quireZooKeeperAuth=me\n", "digest:user:password"),
    ],
)
def test_what_is_wrong_is_told_by_its_key(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        AUTORECOVERY.load(conf(tmp_path, text))


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        AUTORECOVERY.load(tmp_path / "none.conf")


def test_exit_codes_are_the_originals() -> None:
    assert exit_code(ExceptionGroup("", [MetadataUnavailableError("away"), SessionExpiredError("gone")])) == 3
    assert exit_code(IncompatibleUnderreplicationError("newer")) == 2
    assert exit_code(OSError("in use")) == 2
    assert exit_code(PortError("httpServerPort=8000: in use")) == 2
    assert exit_code(ConfigError("wrong")) == 1
    assert exit_code(AssertionError("our mistake")) is None


@pytest.mark.expect_error("internal error, the server ends")
async def test_what_a_callback_raises_ends_auto_recovery_with_a_reason(world: World) -> None:
    def boom() -> None:
        raise KeyError("an event")

    async def serve() -> None:
        store = MemoryStore(MemoryTree())
        await store.create("/ledgers/INSTANCEID", b"an instance", make_parents=True)
        await store.create("/ledgers/available/readonly", b"", make_parents=True)
        async with ending_at_faults(world.faults) as nursery:
            serving = partial(
                serve_autorecovery, world, store, AutoRecoveryConfig(), name="me", root="/ledgers", stop=trio.Event()
            )
            nursery.start_soon(serving)
            await trio.sleep(10)
            world.faults.call("an event", boom)
            await trio.sleep(600)

    with pytest.raises(ExceptionGroup) as raised:
        await serve()
    (error,) = leaves(raised.value)
    assert isinstance(error, InternalError)
    assert exit_code(raised.value) == 2
