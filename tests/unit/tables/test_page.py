"""docs/tables.md, typed as it stands. Its commands run in this process, which is ten times as fast as a shell."""

from __future__ import annotations

import functools
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

import quire
from quire.cli.main import app
from tests.support.pages.page import Command, missing, read, substituted
from tests.support.small_cluster import SmallCluster
from tests.unit.spark.reading.via import Links

PAGE = Path(__file__).resolve().parents[3] / "docs/tables.md"


def type_command(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    words = shlex.split(command.text)
    assert words[:2] == ["quire", "sql"]
    with pytest.raises(SystemExit) as ended:
        app(words[1:], prog_name="quire")
    captured = capsys.readouterr()
    assert bool(ended.value.code) == (command.mode == "fails"), captured
    assert missing(command.output, captured.out + captured.err) is None, captured


def test_the_page(
    cluster: SmallCluster, links: Links, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("QUIRE_SERVICE_URL", cluster.url)
    monkeypatch.setenv("QUIRE_ADMIN_URL", cluster.web)
    table = functools.partial(quire.table, service_url=cluster.url, admin_url=cluster.web)
    monkeypatch.setattr(quire, "table", table)
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    names: dict[str, Any] = {}
    publish, first, more = (substituted(block, {"pulsar://127.0.0.1:6650": cluster.url}) for block in blocks)
    exec(publish, names)
    exec(first, names)
    assert capsys.readouterr().out == "1000 ['__key', 'value', '__publishTime']\n"
    for command in read(PAGE):
        type_command(command, capsys)
    exec(more, names)
    assert capsys.readouterr().out == ""
