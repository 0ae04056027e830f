"""cookie_create, cookie_delete, cookie_update, cookie_get, cookie_generate"""

from __future__ import annotations

from pathlib import Path

import pytest

from quire.metadata.ledgers import read_instance_id
from tests.unit.cli.shell.build import MemoryCluster

COOKIE = '5\nbookieHost: "b:1"\njournalDir: "j"\nledgerDirs: "1\\tl"\n'


@pytest.fixture
def cluster(tmp_path: Path) -> MemoryCluster:
    made = MemoryCluster(tmp_path)
    made.do(lambda store: store.create("/bk"))
    made.shell("initnewcluster")
    return made


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "cookie"
    path.write_text(COOKIE)
    return path


def test_a_cookie_is_made_printed_replaced_and_deleted(cluster: MemoryCluster, file: Path) -> None:
    assert cluster.shell("cookie_create", "-cf", str(file), "b:1").code == 0
    shown = cluster.shell("cookie_get", "b:1")
    assert shown.out == f"Cookie for bookie 'b:1' is:\n---\n{COOKIE}\n---\n"
    again = cluster.shell("cookie_create", "-cf", str(file), "b:1")
    assert (again.code, "has a cookie already" in again.err) == (255, True)
    file.write_text(COOKIE + 'instanceId: "x"\n')
    assert cluster.shell("cookie_update", "--cookie-file", str(file), "b:1").code == 0
    assert cluster.shell("cookie_get", "b:1", "--json").values == [
        {
            "layoutVersion": 5,
            "bookieHost": "b:1",
            "journalDirs": ["j"],
            "ledgerDirs": ["l"],
            "indexDirs": None,
            "instanceId": "x",
        }
    ]
    assert cluster.shell("cookie_delete", "b:1").code == 0
    for words in (("cookie_delete",), ("cookie_get",), ("cookie_update", "-cf", str(file))):
        ran = cluster.shell(*words, "b:1")
        assert (ran.code, ran.err) == (255, "quire shell: bookie b:1 has no cookie in the cluster\n")


def test_a_file_that_is_no_cookie_is_not_stored(cluster: MemoryCluster, file: Path) -> None:
    assert cluster.shell("cookie_create", "-cf", str(file), "b:1").code == 0
    file.write_text("bookiePort=3181\n")
    for command, bookie in (("cookie_create", "b:2"), ("cookie_update", "b:1")):
        ran = cluster.shell(command, "-cf", str(file), bookie)
        assert ran.code == 255
        assert "a cookie does not begin with" in ran.err
    assert COOKIE in cluster.shell("cookie_get", "b:1").out
    assert cluster.shell("cookie_get", "b:2").code == 255


def test_the_cookie_of_another_bookie_is_stored_with_a_warning(cluster: MemoryCluster, file: Path) -> None:
    ran = cluster.shell("cookie_create", "-cf", str(file), "b:2")
    assert ran.code == 0
    assert "is the cookie of bookie b:1: bookie b:2 will refuse to start" in ran.err


def test_a_damaged_cookie_is_shown_as_it_is(cluster: MemoryCluster) -> None:
    cluster.do(lambda store: store.create("/bk/ledgers/cookies/b:1", b"5\nhalf", make_parents=True))
    ran = cluster.shell("cookie_get", "b:1")
    assert (ran.code, "half" in ran.out) == (255, True)
    assert "damaged" in ran.err


@pytest.mark.parametrize("bookie_id", ["readonly", "a/b", "a b"])
def test_a_name_that_no_bookie_can_have_is_refused(cluster: MemoryCluster, file: Path, bookie_id: str) -> None:
    ran = cluster.shell("cookie_create", "-cf", str(file), bookie_id)
    assert (ran.code, "invalid bookie id" in ran.err) == (255, True)


def test_without_a_cluster_no_cookie_is_made(tmp_path: Path, file: Path) -> None:
    ran = MemoryCluster(tmp_path, root="/none").shell("cookie_create", "-cf", str(file), "b:1")
    assert (ran.code, "was never initialised" in ran.err) == (255, True)


def test_a_cookie_is_generated_as_the_original_does(cluster: MemoryCluster, tmp_path: Path) -> None:
    """The expected bytes are those that BookKeeper 4.17.3 wrote for the same command."""
    out = tmp_path / "generated"
    assert cluster.shell("cookie_generate", "-j", "a,b", "-l", "c,d", "-o", str(out), "z:5").code == 0
    instance_id = cluster.do(lambda store: read_instance_id(store, cluster.root))
    expected = f'5\nbookieHost: "z:5"\njournalDir: "a,b"\nledgerDirs: "2\\tc\\td"\ninstanceId: "{instance_id}"\n'
    assert out.read_text() == expected
    words = (
        "-journal-dirs",
        "a",
        "-ledger-dirs",
        "c",
        "-index-dirs",
        "e",
        "-instance-id",
        "iid",
        "-output-file",
        str(out),
    )
    assert cluster.shell("cookie_generate", *words, "z:5").code == 0
    assert out.read_text() == (
        '5\nbookieHost: "z:5"\njournalDir: "a"\nledgerDirs: "1\\tc"\ninstanceId: "iid"\nindexDirs: "1\\te"\n'
    )
    missing = cluster.shell("cookie_generate", "-j", "a", "z:5")
    assert (missing.code, "must be given" in missing.err) == (255, True)
