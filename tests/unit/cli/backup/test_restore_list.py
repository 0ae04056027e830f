"""The command `quire admin restore list`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from quire.cli.admin.verbs import Request
from quire.cli.backup import commands

FOUND = [
    {
        "topic": "persistent://a/b/c",
        "backup": "c0ffee",
        "begunMs": 0,
        "touchedMs": 1_700_000_000_000,
        "unfinished": ["persistent://a/b/c-partition-0", "persistent://a/b/c-partition-1"],
    }
]


class Broker:
    """Sender of a broker with one restoration."""

    def __enter__(self) -> Broker:
        return self

    def __exit__(self, *_: object) -> None: ...

    def send(self, request: Request) -> Any:
        assert (request.method, request.path) == ("GET", "/admin/v2/quireRestores")
        return FOUND


@pytest.mark.parametrize("as_json", [False, True])
def test_restorations_are_listed_as_lines_or_as_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *, as_json: bool
) -> None:
    monkeypatch.setattr(commands, "_sender", lambda options: Broker())
    with pytest.raises(SystemExit) as ended:
        commands.restore_app()(["list", *(["--json"] if as_json else [])])
    assert ended.value.code == 0
    said = capsys.readouterr().out
    if as_json:
        assert json.loads(said) == FOUND
    else:
        assert said == (
            "topic persistent://a/b/c, backup c0ffee, begun 1970-01-01T00:00:00Z, touched 2023-11-14T22:13:20Z, "
            "unfinished persistent://a/b/c-partition-0 persistent://a/b/c-partition-1\n"
        )
