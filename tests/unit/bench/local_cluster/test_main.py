"""Arguments of scripts/cluster."""

from __future__ import annotations

import pytest

from tools.local_cluster.__main__ import main
from tools.local_cluster.actions import settings
from tools.local_cluster.plan import Kind


@pytest.mark.parametrize("words", [["--help"], ["up", "--help"], ["kill", "--help"], ["logs", "--help"]])
def test_every_command_has_help(words, capsys):
    assert main(words) == 0
    assert "Usage: scripts/cluster" in capsys.readouterr().out


@pytest.mark.parametrize("words", [["up", "--nothing"], ["kill"], ["nothing"], ["up", "--bookies", "many"]])
def test_a_command_line_that_is_not_understood_ends_with_2(words, capsys):
    assert main(words) == 2
    assert "Usage: scripts/cluster" in capsys.readouterr().err


def test_settings_are_taken_by_kind():
    assert settings(["broker.a=1", "broker.b=x=y", "zk.tickTime=200"]) == {
        Kind.BROKER: {"a": "1", "b": "x=y"},
        Kind.ZOOKEEPER: {"tickTime": "200"},
    }


@pytest.mark.parametrize("wrong", ["a=1", "broker.a", "nobody.a=1"])
def test_settings_that_are_none_are_refused(wrong):
    with pytest.raises(ValueError, match=r"not of the form KIND\.KEY=VALUE"):
        settings([wrong])


@pytest.mark.parametrize("words", [["status"], ["down"], ["kill", "bookie1"], ["add-bookie"], ["logs", "zk1"]])
def test_without_a_cluster_each_command_says_how_to_make_one(words, tmp_path, capsys):
    assert main(["--folder", str(tmp_path), *words]) == 2
    assert "create one with scripts/cluster up" in capsys.readouterr().err


def test_a_folder_with_something_in_it_is_not_made_a_cluster(tmp_path, capsys):
    (tmp_path / "precious").write_text("x")
    assert main(["--folder", str(tmp_path), "up"]) == 2
    assert "has files of an earlier cluster" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["precious"]
