from __future__ import annotations

from pathlib import Path

import pytest

from quire.servers.zookeeper import jars
from quire.servers.zookeeper.probe import ZooKeeperServerError, probe_of
from quire.servers.zookeeper.process import find_java, java_command, run_zookeeper, write_conf
from tests.support.refusals import refuses


def test_a_missing_java_is_one_clear_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    code = run_zookeeper(tmp_path / "data", host="127.0.0.1", port=1, conf=None, log_level="warn")
    assert code == 1
    assert capsys.readouterr().err.splitlines() == [
        "quire zookeeper: there is no java: install a Java 17 runtime, or set JAVA_HOME"
    ]


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    refuses(jars.JarsError, lambda: jars.find_jars(), r"--fetch-jars, .*quire-broker\[zookeeper\]")


def test_java_home_comes_first(tmp_path: Path) -> None:
    java = tmp_path / "bin/java"
    java.parent.mkdir()
    java.touch(mode=0o755)
    assert find_java({"JAVA_HOME": str(tmp_path), "PATH": "/nowhere"}) == str(java)


def test_the_written_conf_says_where_clients_come(tmp_path: Path) -> None:
    conf = write_conf(tmp_path / "zk", host="0.0.0.0", port=2200)
    assert (probe_of(conf).address, probe_of(conf).context) == ("127.0.0.1:2200", None)
    lines = conf.read_text().splitlines()
    assert f"dataDir={tmp_path / 'zk'}" in lines
    assert "admin.enableServer=false" in lines
    assert java_command(conf)[-2:] == ["org.apache.zookeeper.server.quorum.QuorumPeerMain", str(conf)]


def test_a_conf_without_a_port_is_refused(tmp_path: Path) -> None:
    conf = tmp_path / "zoo.cfg"
    conf.write_text("# clientPort=2181\ndataDir=/x\n")
    refuses(ZooKeeperServerError, lambda: probe_of(conf), "no clientPort, and no secureClientPort")


def test_a_conf_that_is_not_there_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    conf = tmp_path / "zoo.cfg"
    assert run_zookeeper(tmp_path, host="", port=0, conf=conf, log_level="warn") == 1
    assert str(conf) in capsys.readouterr().err


def test_a_folder_without_the_server_is_refused_and_the_remedy_named(tmp_path: Path) -> None:
    refuses(jars.JarsError, lambda: jars.find_jars(tmp_path), r"zookeeper-3\*\.jar: --fetch-jars")


def test_a_fetch_needs_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_zookeeper(tmp_path, host="", port=0, conf=None, log_level="warn", fetch=True) == 1
    assert "--fetch-jars needs --jars" in capsys.readouterr().err


def test_a_fetch_without_maven_is_one_clear_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    code = run_zookeeper(tmp_path, host="", port=0, conf=None, log_level="warn", jars=tmp_path / "jars", fetch=True)
    assert code == 1
    assert "--fetch-jars needs Maven" in capsys.readouterr().err


@pytest.mark.parametrize(
    "does", ["exit 1", 'for f in "$@"; do case $f in -DoutputDirectory=*) mkdir ${f#*=};; esac; done']
)
def test_what_maven_does_not_fetch_is_an_error_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, does: str
) -> None:
    maven = tmp_path / "mvn"
    maven.write_text(f"#!/bin/sh\n{does}\n")
    maven.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(jars.JarsError, match=r"is there a network|not what was expected: zookeeper-3"):
        jars.fetch_jars(tmp_path / "jars")
    assert not (tmp_path / "jars").exists()
