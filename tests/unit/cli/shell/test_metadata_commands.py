"""Commands on the metadata of a cluster, as a user types them."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
import trio

from autorecovery.marks.underreplication import CheckTime, UnderreplicatedLedgers
from autorecovery.removal.ledger_scan import READS_AT_ONCE
from quire.metadata import bookies, ledger_codec
from quire.metadata.layouts import HIERARCHICAL
from quire.metadata.ledgers import Fragment, LedgerMetadata, LedgerState, read_instance_id
from quire.metadata.local.memory import MemoryStore
from quire.world.real import real_world
from tests.support.datadriven import Line
from tests.support.dialogues import Dialogue, dialogues
from tests.unit.cli.shell.build import MemoryCluster

INFO = bookies.BookieServiceInfo(endpoints=(bookies.Endpoint(host="h", port=3181),))
METADATA = LedgerMetadata(
    ensemble_size=2, write_quorum=2, ack_quorum=1, fragments=(Fragment(0, ("b:1", "b:2")),), password=b"pw"
)
TESTDATA = Path(__file__).parent / "testdata"


class Typist:
    """A user of the shell, and an operator who looks at what it did.

    `shell: words <n;yes` types a command and answers its questions; an exit code that is not 0 comes first, and lines
    of standard error begin with `!`. Instance ids are numbered in the order in which they are seen.
    """

    def __init__(self, folder: Path, root: str) -> None:
        self.cluster = MemoryCluster(folder, root=root)
        self.folder = folder
        self.ids: list[str] = []

    def instance_id(self) -> str | None:
        """Return the instance id of the cluster, None if there is no cluster."""
        if self.stored(f"{self.cluster.root}/INSTANCEID") is None:
            return None
        found: str = self.cluster.do(lambda store: read_instance_id(store, self.cluster.root))
        if found not in self.ids:
            self.ids.append(found)
        return found

    def shown(self, text: str) -> str:
        self.instance_id()
        for number, each in enumerate(self.ids, 1):
            text = text.replace(each, f"ID{number}")
        return re.sub(r"(protobuf text is damaged): .*", r"\1", text.replace(f"{self.folder}/", ""))

    def stored(self, path: str) -> bytes | None:
        node = self.cluster.do(lambda store: store.get(path))
        return None if node is None else node.value

    def create(self, path: str, value: bytes) -> None:
        self.cluster.do(lambda store: store.create(path, value, make_parents=True))

    def answer(self, step: Line) -> str:
        match step.name:
            case "shell":
                words, _, answers = step.word().partition(" <")
                self.instance_id()
                typed = [each.replace("%20", " ") for each in words.replace("INSTANCE", "".join(self.ids[-1:])).split()]
                ran = self.cluster.shell(*typed, answers="".join(f"{each}\n" for each in answers.split(";") if each))
                return self.shown(ran.told)
            case "conf":
                self.cluster.conf.write_text(f"{step.word()}\n")
            case "configure":
                with self.cluster.conf.open("a") as conf:
                    conf.write(f"{step.word()}\n".replace(":", "=", 1))
            case "file":
                name, _, text = step.word().partition(" ")
                (self.folder / name).write_text(text.encode().decode("unicode_escape"))
            case "read":
                return self.shown((self.folder / step.word()).read_text()).encode("unicode_escape").decode()
            case "instance":
                return self.shown(self.instance_id() or "none")
            case "node":
                value = self.stored(step.word())
                return "none" if value is None else value.decode().encode("unicode_escape").decode() or "empty"
            case "children":
                path = step.word()
                return " ".join(self.cluster.do(lambda store: store.children(path))) or "none"
            case "create":
                path = step.word()
                value = step.option("value", "").encode().decode("unicode_escape").encode()
                self.create(path, value)
            case "register":
                self.register(step.word(), read_only=bool(step.words and step.word() == "read-only"))
            case "put":
                self.put(step)
            case "same":
                one, other = (self.stored(HIERARCHICAL.path(self.cluster.root, step.number())) for _ in range(2))
                return "yes" if one == other is not None else "no"
            case _:
                raise step.unknown()
        return ""

    def register(self, name: str, *, read_only: bool) -> None:
        """Register a bookie permanently: its session stays open."""

        async def main() -> None:
            store = MemoryStore(self.cluster.tree)
            await bookies.register(store, name, INFO, read_only=read_only, root=self.cluster.root)

        trio.run(main)

    def put(self, step: Line) -> None:
        """Store ledgers `first..last` on bookies."""
        on = step.option("on", "b:1,b:2").split(",")
        state = {"open": LedgerState.OPEN, "closed": LedgerState.CLOSED}[step.option("state", "open")]
        value = ledger_codec.encode(replace(METADATA, state=state, fragments=(Fragment(0, tuple(on)),)))
        while step.words:
            first, last = step.span()
            for ledger_id in range(first, last + 1):
                self.create(HIERARCHICAL.path(self.cluster.root, ledger_id), value)


@pytest.mark.parametrize(
    "dialogue",
    [
        *dialogues(TESTDATA / "clusters.txt"),
        *dialogues(TESTDATA / "ledgers.txt"),
        *dialogues(TESTDATA / "cookies.txt"),
        *dialogues(TESTDATA / "overview.txt"),
    ],
)
def test_a_command(dialogue: Dialogue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A `cluster` is initialised, an `empty` one has the parent of its root, and `nothing` has not even that."""
    monkeypatch.chdir(tmp_path)
    typist = Typist(tmp_path, "/bk/ledgers")
    if dialogue.command.name != "nothing":
        typist.cluster.do(lambda store: store.create("/bk"))
    if dialogue.command.name == "cluster":
        assert typist.cluster.shell("initnewcluster").code == 0
    dialogue.check(typist.answer)


def test_many_ledgers_come_with_their_metadata_in_order(tmp_path: Path) -> None:
    typist = Typist(tmp_path, "/bk/ledgers")
    typist.cluster.do(lambda store: store.create("/bk"))
    typist.cluster.shell("initnewcluster")
    count = 2 * READS_AT_ONCE + 3
    typist.put(Line.of("", f"put 0..{count - 1}"))
    values = typist.cluster.shell("listledgers", "-m", "--json").values
    assert [value["ledgerId"] for value in values] == list(range(count))
    assert values[0]["metadata"]["ensembles"] == {"0": ["b:1", "b:2"]}


async def check_times(store: MemoryStore) -> list[int | None]:
    rng = real_world().rng
    marks = UnderreplicatedLedgers(store, root="/bk/ledgers", rng=rng, wall_ms=lambda: 0, owner="")
    return [await marks.check_time(check) for check in CheckTime]


def test_the_checks_of_the_auditor_get_an_old_time(tmp_path: Path) -> None:
    typist = Typist(tmp_path, "/bk/ledgers")
    typist.cluster.do(lambda store: store.create("/bk"))
    typist.cluster.shell("initnewcluster")
    began = real_world().clock.wall_ms()
    values = typist.cluster.shell("forceauditchecks", "-calc", "-rc", "--json").values
    assert [value["check"] for value in values] == ["checkallledgerscheck", "replicascheck"]

    found = typist.cluster.do(check_times)
    assert found[1] is None
    for each in (found[0], found[2]):
        assert 0 <= each + 21 * 86_400_000 - began < 60_000
    ran = typist.cluster.shell("forceauditchecks", "-ppc")
    assert re.fullmatch(r"Resetting PlacementPolicyCheckCTime to : \d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}\n", ran.out)
    assert "restart the process that whoisauditor names" in ran.err


def test_ledgers_name_a_bookie_by_its_host_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostbyname", lambda name: "10.1.2.3")
    monkeypatch.setattr("socket.getfqdn", lambda: "one.example.org")
    typist = Typist(tmp_path, "/bk/ledgers")
    typist.cluster.do(lambda store: store.create("/bk"))
    typist.cluster.shell("initnewcluster")
    typist.put(Line.of("", "put 0 on=10.1.2.3:3181,b:2"))
    ran = typist.cluster.shell("updateledgers", "-b", "hostname", "-s", "1000", "-v", "true", "-p", "1")
    assert ran.out.splitlines()[-1] == "Total number of ledgers issued=1 updated=1"
    (value,) = typist.cluster.shell("listledgers", "-m", "--json").values
    assert value["metadata"]["ensembles"] == {"0": ["one.example.org:3181", "b:2"]}
    typist.cluster.shell("updateledgers", "-b", "ip", "-s", "1000")
    (value,) = typist.cluster.shell("listledgers", "-m", "--json").values
    assert value["metadata"]["ensembles"] == {"0": ["10.1.2.3:3181", "b:2"]}
