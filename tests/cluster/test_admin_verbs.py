"""Every verb of `quire admin` on a real server of Quire. tests/interop has the comparison with the original."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from quire.cli.admin.groups import GROUPS, group
from tests.support.admin_verbs import FOLDER, NOT_RUN, run_every_verb, run_own
from tests.support.server import standalone


@pytest.mark.full
@pytest.mark.real_clock(seconds=200)
def test_every_verb_is_answered_and_none_with_an_internal_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(FOLDER)
    conf: dict[str, object] = {"transactionCoordinatorEnabled": "true", "forceDeleteNamespaceAllowed": "true"}
    with standalone(tmp_path, conf) as server:
        found = run_every_verb(server.web, server.url, "standalone")
    asked = {" ".join(line.split()[:2]) for line in found} | NOT_RUN
    assert {f"{name} {verb.name}" for name in GROUPS for verb in group(name).verbs} - asked == set()
    failed = {line: answer for line, answer in found.items() if answer[0] in ("500", "503", "504", "exit 3")}
    assert failed == {}
    done = sum(answer[0] == "done" for answer in found.values())
    assert done >= 330, f"{done} of {len(found)} lines were done"


@pytest.mark.real_clock
def test_commands_that_are_no_verbs_of_the_original_do_their_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    with standalone(tmp_path / "server", {"transactionCoordinatorEnabled": "true"}) as server:
        found = run_own(server.web, server.url, tmp_path)
    assert {line: answer for line, answer in found.items() if answer[0] != 0} == {}
    assert "5 entries wait and no consumer is connected" in found["explain t/n/x"][1]
    assert json.loads(found["context list --json"][1])["current"] == "c"
