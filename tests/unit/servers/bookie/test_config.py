"""An original bk_server.conf loads: every key is honoured, ignored by name, or refused with the remedy."""

from __future__ import annotations

from pathlib import Path

import pytest

from quire.servers.bookie.config import BOOKIE, BookieServerConfig
from quire.servers.bookie.metadata import DEFAULT_METADATA_URI
from quire.service.errors import ConfigError
from quire.service.log import Event
from quire.service.original_keys import is_original_key
from quire.service.unsupported import BOOKIE_RULES

ROOT = Path(__file__).resolve().parents[4]
GOLDEN = ROOT / "tests/golden/bookkeeper/db/bk1.conf"


def load(tmp_path: Path, text: str) -> BookieServerConfig:
    path = tmp_path / "bk_server.conf"
    path.write_text(text)
    return BOOKIE.load(path)


def problems(tmp_path: Path, text: str) -> str:
    with pytest.raises(ConfigError) as found:
        load(tmp_path, text)
    return str(found.value)


def test_an_older_name_stands_for_a_field() -> None:
    fields = set(BOOKIE.keys())
    assert fields & set(BOOKIE_RULES.aliases) == set()
    assert set(BOOKIE_RULES.aliases.values()) <= fields


def test_every_honoured_key_is_the_originals_or_begins_with_ours() -> None:
    keys = BOOKIE.keys()
    assert [key for key in keys if not is_original_key(key) and not key.startswith("quire")] == []


def test_the_documented_file_is_what_the_code_says_and_reads_as_the_defaults(log_events: list[Event]) -> None:
    path = ROOT / "conf/bk_server.conf"
    assert path.read_text() == BOOKIE.render()
    assert BOOKIE.load(path) == BOOKIE.build()
    assert [event for event in log_events if "does not obey" in event["event"]] == []
    for name in set(BOOKIE_RULES.by_name) - set(BOOKIE.keys()):
        assert name in path.read_text()


def test_the_originals_own_golden_configuration_loads_but_for_what_it_asks_of_disks(tmp_path: Path) -> None:
    text = GOLDEN.read_text()
    with pytest.raises(ConfigError, match=r"diskUsageWarnThreshold=0\.98: it would have no effect here"):
        load(tmp_path, text)
    config = load(tmp_path, text.replace("diskUsageWarnThreshold=0.98", ""))
    assert (config.bookie.port, config.address.advertised_address, config.process.listening_interface) == (
        3281,
        "127.0.0.1",
        "lo",
    )
    assert (config.bookie.journal_directory, config.bookie.ledger_directory) == ("bk1/journal", "bk1/ledgers")
    assert (config.bookie.journal_size_max_mb, config.bookie.entry_log_size_max) == (2, 8192)
    assert config.metadata.metadata_service == "zk+hierarchical://127.0.0.1:2281/db/ledgers"


@pytest.mark.parametrize(
    ("name", "bad", "good"),
    [
        ("bookieAuthProviderFactoryClass", "org.apache.bookkeeper.sasl.SASLBookieAuthProviderFactory", "null"),
        ("tlsProviderFactoryClass", "org.apache.bookkeeper.tls.TLSContextFactory", ""),
        ("journalWriteData", "false", "true"),
        ("journalFormatVersionToWrite", "4", "5"),
        ("journalReuseFiles", "true", "false"),
        ("entryLogPerLedgerEnabled", "true", "false"),
        ("ledgerStorageClass", "com.example.Storage", "org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage"),
        ("allowStorageExpansion", "true", "false"),
        ("dataIntegrityChecking", "true", "false"),
        ("disableServerSocketBind", "true", "false"),
        ("authorizedRoles", "admin", ""),
    ],
)
def test_what_would_silently_be_missed_is_refused_with_line_and_remedy(
    tmp_path: Path, name: str, bad: str, good: str
) -> None:
    said = problems(tmp_path, f"# first line\n{name}={bad}\n")
    assert f"bk_server.conf:2: {name}={bad}: " in said
    assert BOOKIE_RULES.by_name[name].reason in said
    assert BOOKIE_RULES.problem_of(name, good) is None
    assert load(tmp_path, f"{name}={good}\n") == BOOKIE.build()


def test_all_problems_of_a_file_are_told_at_once_with_their_lines(tmp_path: Path) -> None:
    said = problems(tmp_path, "journalWriteData=false\npageSize=1\nbookiePort=many\nflushIntervall=1\nnonsense\n")
    assert [line.split(": ")[0].rpartition(":")[2] for line in said.splitlines()] == ["1", "3", "4", "5"]
    assert "did you mean flushInterval?" in said


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("journalDirectories=/a,/b", "one folder of each kind"),
        ("ledgerDirectories=/a,/b", "run one bookie per folder"),
        ("bookiePort=0", "allowEphemeralPorts"),
        ("quireZooKeeperAuth=me", "digest:user:password"),
        ("quireZooKeeperTlsCaFile=/ca.pem", "set it to true"),
        ("quireZooKeeperTls=true\nquireZooKeeperTlsKeyFile=/key.pem", "go together"),
        ("ledgerDirectories=", "a bookie needs a folder"),
        ("journalDirectories=/a\njournalDirectories=/b", "one folder of each kind"),
    ],
)
def test_values_that_cannot_go_together_are_refused(tmp_path: Path, text: str, reason: str) -> None:
    assert reason in problems(tmp_path, text)


def test_the_older_name_counts_only_without_the_newer(tmp_path: Path) -> None:
    assert load(tmp_path, "journalDirectory=/old").bookie.journal_directory == "/old"
    assert load(tmp_path, "journalDirectory=/old\njournalDirectories=/new").bookie.journal_directory == "/new"


def test_the_metadata_service_comes_from_whichever_keys_say_it(tmp_path: Path) -> None:
    assert load(tmp_path, "").metadata.metadata_service == DEFAULT_METADATA_URI
    older = load(tmp_path, "zkServers=a:1,b:2\nzkLedgersRootPath=/bk\n")
    assert older.metadata.metadata_service == "zk+null://a:1;b:2/bk"
    both = load(tmp_path, "zkServers=a:1\nmetadataServiceUri=zk+flat://c:3/x\n")
    assert both.metadata.metadata_service == "zk+flat://c:3/x"


def test_the_first_value_of_a_key_counts_and_of_a_list_all(tmp_path: Path) -> None:
    config = load(tmp_path, "bookieId=one\nbookieId=two\nzkServers=a:1\nzkServers=b:2\npermittedStartupUsers=x\n" * 2)
    assert config.bookie.bookie_id == "one"
    assert config.metadata.metadata_service == "zk+null://a:1;b:2;a:1;b:2/ledgers"
    assert config.process.permitted_users == ("x", "x")
