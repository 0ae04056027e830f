from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import pytest

from quire.cli.shell.main import COMMANDS, confirm, run_shell, split
from quire.metadata.errors import MetadataUnavailableError
from quire.metadata.store import MetadataStore
from quire.servers.cluster_config import ClusterConfig
from quire.world.doors import World
from tests.unit.cli.shell.build import MemoryCluster, Ran

THE_ORIGINALS = (
    "initnewcluster metaformat nukeexistingcluster whatisinstanceid listbookies bookieinfo listledgers ledgermetadata "
    "readledger deleteledger simpletest bookiesanity cookie_create cookie_delete cookie_update cookie_get "
    "cookie_generate lastmark readjournal readlog readlogmetadata ledger recover decommissionbookie "
    "listunderreplicated autorecovery queryautorecoverystatus lostbookierecoverydelay triggeraudit whoisauditor "
    "initbookie bookieformat listfilesondisc updatecookie updateledgers updateBookieInLedger clusterinfo activeledgers "
    "endpointinfo forceauditchecks convert-to-db-storage convert-to-interleaved-storage localconsistencycheck "
    "rebuild-db-ledger-locations-index rebuild-db-ledgers-index check-db-ledgers-index "
    "regenerate-interleaved-storage-index-file"
)
"""The commands of BookKeeper 4.17.3's BookieShell."""
OURS = ("scrub", "dataintegrity")
"""Commands that it does not have."""


def shell(*words: str, environment: dict[str, str] | None = None) -> Ran:
    out, err = io.StringIO(), io.StringIO()
    code = run_shell(words, out=out, err=err, stdin=io.StringIO(), environment=environment or {})
    return Ran(code, out.getvalue(), err.getvalue())


def test_every_command_is_there_and_tells_its_options() -> None:
    assert sorted(COMMANDS) == sorted([*THE_ORIGINALS.split(), *OURS])
    listed = shell("help")
    assert listed.code == 0
    for name, command in COMMANDS.items():
        assert f"  {name} " in listed.out
        for words in (("help", name), (name, "--help"), (name, "-help")):
            told = shell(*words)
            assert told.code == 0
            assert told.out.startswith(f"{name}: {command.help}\nusage: quire shell {name}")
            assert all(option.words in told.out for option in command.options)


def test_dash_h_is_help_but_for_the_command_that_has_it() -> None:
    assert shell("readledger", "-h").code == 0
    assert shell("listbookies", "-h").code == 1


def test_nothing_and_the_unknown_are_the_originals_minus_one() -> None:
    nothing = shell()
    assert (nothing.code, nothing.out) == (255, "")
    assert "usage: quire shell" in nothing.err
    unknown = shell("nosuch")
    assert (unknown.code, unknown.err) == (255, "quire shell: no such command: nosuch (quire shell help lists them)\n")
    assert shell("help", "nosuch").code == 255
    wrong = shell("readledger", "-zz")
    assert wrong.err == "quire shell: readledger: no such option: -zz (see: quire shell help readledger)\n"
    assert shell("-nosuch", "lastmark").code == 255
    assert "'octal' is not a valid EntryFormat" in shell("-entryformat", "octal", "lastmark").err


def test_options_before_the_command_are_told_from_its_own() -> None:
    assert split(["--conf", "f", "-json", "readledger", "-l", "5"]) == (
        ["--conf", "f", "-json"],
        "readledger",
        ["-l", "5"],
    )
    assert split(["-conf", "readledger"]) == (["-conf", "readledger"], None, [])
    assert split(["-h"]) == ([], "-h", [])


def test_the_configuration_is_the_named_one_or_the_environments_or_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("named", "variable", "conf"):
        (tmp_path / name / "l/current").mkdir(parents=True)
        (tmp_path / f"{name}.conf").write_text(f"journalDirectories={name}/j\nledgerDirectories={name}/l\n")

    def journal_folder(*words: str, environment: dict[str, str] | None = None) -> str:
        return shell(*words, "readjournal", "1", environment=environment).err

    variable = {"BOOKIE_CONF": "variable.conf"}
    assert "named/j" in journal_folder("-conf", "named.conf", environment=variable)
    assert "variable/j" in journal_folder(environment=variable)
    assert "data/bookkeeper/journal" in journal_folder()
    (tmp_path / "conf.conf").rename(tmp_path / "conf/bk_server.conf")
    assert "conf/j" in journal_folder()
    missing = shell("-conf", "nofile", "lastmark")
    assert (missing.code, missing.err) == (255, "quire shell: nofile: cannot be read: No such file or directory\n")


def test_a_metadata_service_that_does_not_answer_is_one_line(tmp_path: Path) -> None:
    class Away(MemoryCluster):
        async def open(self, world: World, config: ClusterConfig) -> MetadataStore:
            raise MetadataUnavailableError("no ZooKeeper answers at zk1:2181")

    ran = Away(tmp_path).shell("listledgers")
    assert (ran.code, ran.out, ran.err) == (255, "", "quire shell: no ZooKeeper answers at zk1:2181\n")


def test_our_own_mistakes_are_not_hidden(tmp_path: Path) -> None:
    class Broken(MemoryCluster):
        async def open(self, world: World, config: ClusterConfig) -> MetadataStore:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        Broken(tmp_path).shell("listledgers")


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("Y\n", True),
        ("yes\n", True),
        ("n\n", False),
        ("NO\n", False),
        ("", False),
        ("what\ny\n", True),
        ("\n\n", False),
    ],
)
def test_only_a_yes_is_a_yes_and_the_end_of_the_input_is_a_no(lines: str, said: bool) -> None:
    err = io.StringIO()
    assert confirm(err, io.StringIO(lines), "Sure?") is said
    assert err.getvalue().startswith("Sure? (Y or N) ")


def test_the_command_line_reaches_the_shell_as_it_is(tmp_path: Path) -> None:
    root = Path(__file__).resolve().parents[4]
    code = "import sys; sys.path.insert(0, sys.argv.pop(1)); from quire.cli.main import main; main()"

    def quire(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", code, str(root), "shell", *words]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)

    (tmp_path / "bk.conf").write_text("ledgerDirectories=l\n")
    (tmp_path / "l/current").mkdir(parents=True)
    mark = quire("-conf", "bk.conf", "lastmark")
    assert (mark.returncode, mark.stdout) == (0, "LastLogMark : Journal Id - 0(0.txn), Pos - 0\n")
    wrong = quire("-conf", "bk.conf", "readledger", "-m", "-le", "-1", "--bookie", "b", "-zz", "-h")
    assert (wrong.returncode, "readledger: no such option: -zz" in wrong.stderr) == (255, True)
    assert "readjournal" in quire("--help").stdout
    listed = subprocess.run(
        [sys.executable, "-c", code, str(root), "--help"], capture_output=True, text=True, check=True, timeout=60
    )
    assert " shell " in listed.stdout


def test_who_reads_only_the_beginning_sees_no_traceback(tmp_path: Path) -> None:
    root = Path(__file__).resolve().parents[4]
    golden = root / "tests/golden/bookkeeper/db/clean"
    code = "import sys; sys.path.insert(0, sys.argv.pop(1)); from quire.cli.main import main; main()"
    words = ["shell", "-conf", "../bk1.conf", "readjournal", "-m", "1a1fdbcafc3.txn"]
    command = [sys.executable, "-c", code, str(root), *words]
    with subprocess.Popen(command, cwd=golden, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 255
