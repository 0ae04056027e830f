"""quire.cli.checkup: each check of `quire doctor` finds its planted trouble, and nothing where there is none."""

from __future__ import annotations

import datetime
import email.utils
import json
import os
import resource
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import Random

import httpx2
import pytest
import trio
from cryptography import x509

from quire.cli.checkup import certificates, command, machine, running, verdicts
from quire.cli.checkup.bookie_clocks import BookieClocks, find_bookie_clocks
from quire.cli.checkup.configured import Server, kind_of, read
from quire.cli.checkup.verdicts import CheckResult, Grade, Mount
from quire.cli.main import app
from quire.distribution import installed_version
from quire.metadata import bookies
from quire.metadata.bookies import BookieServiceInfo, Endpoint
from quire.metadata.ledgers import initialize_layout
from quire.metadata.local.memory import MemoryStore, MemoryTree
from quire.world.real_tls import TlsFiles
from tests.support.certificates import Authority, Pair

OK, WARNING, BAD = Grade.OK, Grade.WARNING, Grade.BAD
GIB = 1 << 30
NOW = datetime.datetime.now(datetime.UTC)


def a_mount(kind: str = "ext4", options: str = "rw,relatime", device: str = "8:1", *, rotating: bool = False) -> Mount:
    return Mount(point="/", kind=kind, options=frozenset(options.split(",")), device=device, rotating=rotating)


@pytest.mark.parametrize(
    ("check", "verdict"),
    [
        (verdicts.free_space("/d", 50 * GIB, 100 * GIB), OK),
        (verdicts.free_space("/d", 9 * GIB, 100 * GIB), WARNING),
        (verdicts.free_space("/d", 63 << 20, 100 * GIB), BAD),
        (verdicts.files_free("/d", 10, 1000), BAD),
        (verdicts.files_free("/d", 10_000, 20_000), OK),
        (verdicts.descriptors(-1), OK),
        (verdicts.descriptors(65536), OK),
        (verdicts.descriptors(1024), WARNING),
        (verdicts.descriptors(64), BAD),
        (verdicts.mount("/d", a_mount()), OK),
        (verdicts.mount("/d", a_mount(options="rw,noatime")), OK),
        (verdicts.mount("/d", a_mount(options="rw")), WARNING),
        (verdicts.mount("/d", a_mount("tmpfs")), BAD),
        (verdicts.mount("/d", a_mount(options="ro,relatime")), BAD),
        (verdicts.mount("/d", a_mount("overlay")), WARNING),
        (verdicts.mount("/d", a_mount("nfs4")), WARNING),
        (verdicts.devices("/j", "/l", a_mount(), a_mount(device="8:2"), standalone=False), OK),
        (verdicts.devices("/j", "/l", a_mount(), a_mount(), standalone=False), OK),
        (verdicts.devices("/j", "/l", a_mount(rotating=True), a_mount(), standalone=False), WARNING),
        (verdicts.sync_speed("/d", [0.001, 0.002, 0.4]), OK),
        (verdicts.sync_speed("/d", [0.03, 0.02, 0.03]), WARNING),
        (verdicts.sync_speed("/d", [0.6]), BAD),
        (verdicts.clock("x", 0.3), OK),
        (verdicts.clock("x", -1.9, resolution_s=2), OK),
        (verdicts.clock("x", -5), WARNING),
        (verdicts.clock("x", 3600), BAD),
        (verdicts.certificate("f", "CN=a", 86400 * 30, "then"), OK),
        (verdicts.certificate("f", "CN=a", 86400, "then"), WARNING),
        (verdicts.certificate("f", "CN=a", -1, "then"), BAD),
        (verdicts.port("webServicePort", "0.0.0.0", 8080, None), OK),
        (verdicts.port("webServicePort", "0.0.0.0", 8080, ""), BAD),
        (verdicts.leftovers([]), OK),
        (verdicts.leftovers(["a.tmp"]), WARNING),
    ],
)
def test_each_fact_has_its_verdict_and_every_trouble_a_remedy(check: CheckResult, verdict: Grade) -> None:
    assert check.verdict is verdict, check.what
    assert bool(check.remedy) == (verdict is not OK)


def test_a_file_system_without_inodes_is_not_judged_by_them() -> None:
    assert verdicts.files_free("/d", 0, 0) is None


MOUNTS = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
23 22 0:21 / /tmp rw,nosuid - tmpfs tmpfs rw
24 22 8:17 / /var/lib/quire\\040data rw,noatime - xfs /dev/sdb1 rw
"""


@pytest.mark.parametrize(
    ("folder", "kind", "device"),
    [("/srv", "ext4", "8:1"), ("/tmp/x", "tmpfs", "0:21"), ("/var/lib/quire data/bookie", "xfs", "8:17")],
)
def test_a_folder_is_on_the_longest_mount_above_it(folder: str, kind: str, device: str, tmp_path: Path) -> None:
    (tmp_path / "8:17/queue").mkdir(parents=True)
    (tmp_path / "8:17/queue/rotational").write_text("1\n")
    found = machine.mount_of(Path(folder), MOUNTS, tmp_path)
    assert found is not None
    assert (found.kind, found.device, found.rotating) == (kind, device, device == "8:17")


def test_the_mount_space_and_sync_of_a_real_folder_are_found_and_nothing_is_left(tmp_path: Path) -> None:
    assert machine.mount_of(tmp_path) is not None
    free, total, _, _ = machine.space(tmp_path)
    assert 0 < free <= total
    assert all(each > 0 for each in machine.sync_times(tmp_path))
    assert list(tmp_path.iterdir()) == []
    assert machine.existing(tmp_path / "a/b/c") == tmp_path


def test_a_taken_port_is_found_with_its_process() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        number = taken.getsockname()[1]
        assert (
            machine.holder("127.0.0.1", number)
            == f"process {os.getpid()} ({Path('/proc/self/comm').read_text().strip()})"
        )
    assert machine.holder("127.0.0.1", number) is None


def test_certificates_and_keys_of_a_configuration_are_judged(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    good = authority.issue("localhost", file="good")
    expired = authority.issue("localhost", file="expired", expired=True)
    good.key.chmod(0o644)
    broken = tmp_path / "broken.pem"
    broken.write_text("no certificate")

    def found(**values: object) -> list[tuple[Grade, str]]:
        texts = {key: str(value) for key, value in values.items()}
        return [(each.verdict, each.what) for each in certificates.examine(texts, NOW)]

    assert [each for each, _ in found(tlsTrustCertsFilePath=authority.trust)] == [OK]
    assert next(each for each, _ in found(tlsCertificateFilePath=expired.certificate)) is BAD
    assert [each for each, _ in found(tlsCertificateFilePath=broken)] == [BAD]
    assert [each for each, _ in found(tlsCertificateFilePath=tmp_path / "store.p12")] == [WARNING]
    pair = found(tlsCertificateFilePath=good.certificate, tlsKeyFilePath=good.key)
    assert "may be read by every user" in pair[-1][1]
    good.key.chmod(0o600)
    assert all(each is OK for each, _ in found(tlsCertificateFilePath=good.certificate, tlsKeyFilePath=good.key))
    mixed = found(tlsCertificateFilePath=good.certificate, tlsKeyFilePath=expired.key)
    assert (mixed[-1][0], "is not the key of" in mixed[-1][1]) == (BAD, True)
    assert found(tlsKeyFilePath=tmp_path / "none.pem")[0][0] is BAD


def run(capsys: pytest.CaptureFixture[str], *given: Path | None) -> tuple[int, list[dict[str, object]], str]:
    data_dir, conf, *_ = (*given, None, None)
    code = command.run(data_dir, conf, None, as_json=True)
    said = capsys.readouterr()
    return code, [json.loads(line) for line in said.out.splitlines()], said.err


def test_a_folder_before_its_first_start_is_examined_and_not_created(tmp_path: Path, capsys) -> None:
    code, found, _ = run(capsys, tmp_path / "data")
    assert code == 0
    assert {each["check"] for each in found[:-1]} >= {"versions", "mount", "space", "sync", "leftovers", "descriptors"}
    assert found[-1] == {"checks": len(found) - 1, "warnings": found[-1]["warnings"], "bad": 0}
    assert not (tmp_path / "data").exists()


def test_a_foreign_folder_a_locked_one_and_no_arguments_are_not_examined(tmp_path: Path, capsys) -> None:
    (tmp_path / "letter.txt").write_text("")
    assert run(capsys, tmp_path)[0] == 2
    assert run(capsys)[0] == 2
    data = tmp_path / "data"
    data.mkdir()
    holds = (
        "import fcntl,sys; f=open(sys.argv[1],'w'); fcntl.flock(f, fcntl.LOCK_EX); print(flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", holds, data / "LOCK"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        code, _, err = run(capsys, data)
        process.communicate(b"")
    assert code == 2
    assert f"process {process.pid}" in err


def test_leftovers_and_a_low_limit_of_open_files_are_found(tmp_path: Path, capsys) -> None:
    (tmp_path / "FORMAT.tmp").write_text("")
    (tmp_path / "FORMAT").write_text("quire standalone 1\n")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    code, found, _ = run(capsys, tmp_path)
    by = {str(each["check"]): each for each in found if "check" in each}
    assert by["leftovers"]["verdict"] == "warning"
    assert "FORMAT.tmp" in str(by["leftovers"]["what"])
    assert code == 1, "the files of this folder are examined too: there is no metadata"
    assert str(hard) in str(by["descriptors"]["what"]) or hard == resource.RLIM_INFINITY
    assert soft <= hard


def test_a_wrong_configuration_and_a_taken_port_are_bad(tmp_path: Path, capsys) -> None:
    conf = tmp_path / "standalone.conf"
    conf.write_text("brokerServicePort=many\n")
    code, found, _ = run(capsys, None, conf)
    assert (code, found[-2]["check"]) == (1, "configuration")
    assert "brokerServicePort" in str(found[-2]["what"])
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        number = taken.getsockname()[1]
        conf.write_text(f"bindAddress=127.0.0.1\nbrokerServicePort={number}\nwebServicePort=0\n")
        code, found, _ = run(capsys, None, conf)
    assert code == 1
    assert [each["check"] for each in found if each.get("verdict") == "bad"] == ["ports"]


def test_a_metadata_store_that_does_not_answer_is_bad(tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.setattr("quire.cli.checkup.store.ANSWER_S", 0.5)
    conf = tmp_path / "broker.conf"
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        number = silent.getsockname()[1]
        conf.write_text(
            f"clusterName=c\nmetadataStoreUrl=zk:127.0.0.1:{number}\nadvertisedAddress=localhost\n"
            "bindAddress=127.0.0.1\nbrokerServicePort=0\nwebServicePort=0\n"
        )
        code, found, _ = run(capsys, None, conf)
    assert code == 1
    assert [each["check"] for each in found if each.get("verdict") == "bad"] == ["metadata"]


def test_the_kind_of_server_is_in_the_name_of_its_configuration() -> None:
    names = ("broker.conf", "standalone.conf", "bk_server.conf", "other")
    assert [kind_of(Path(name)) for name in names] == [Server.BROKER, Server.STANDALONE, Server.BOOKIE, Server.BOOKIE]


def test_a_server_that_is_not_there_is_bad(capsys) -> None:
    with socket.socket() as nothing:
        nothing.bind(("127.0.0.1", 0))
        assert command.run(None, None, f"http://127.0.0.1:{nothing.getsockname()[1]}") == 1
    assert capsys.readouterr().out.startswith("BAD     reachable ")
    assert command.run(Path("x"), None, "http://127.0.0.1:1") == 2


def test_another_version_is_a_warning() -> None:
    assert running._version("x", "0.0.1").verdict is WARNING
    assert running._version("x", installed_version()).verdict is OK


def test_a_certificate_without_a_subject_is_named_so(tmp_path: Path) -> None:
    pair = Authority(tmp_path).issue("localhost")
    found = x509.load_pem_x509_certificates(pair.certificate.read_bytes())[0]
    assert certificates.of_certificate("f", found, NOW).verdict is OK


def test_the_descriptors_of_a_server_that_runs_are_judged_by_its_configuration(
    tmp_path: Path, capsys, monkeypatch
) -> None:
    monkeypatch.setattr("quire.cli.checkup.store.ANSWER_S", 0.5)  # (there is no ZooKeeper)
    conf = tmp_path / "bk_server.conf"
    conf.write_text(
        f"journalDirectories={tmp_path}/journal\nledgerDirectories={tmp_path}/ledgers\nallowLoopback=true\n"
        "advertisedAddress=127.0.0.1\n"
    )
    (tmp_path / "ledgers").mkdir()
    holds = (
        "import fcntl,resource,sys; f=open(sys.argv[1],'w'); fcntl.flock(f, fcntl.LOCK_EX);"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100)); many=[open(sys.argv[1]) for _ in range(85)];"
        "print(flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", holds, tmp_path / "ledgers/quire.lock"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        code, found, err = run(capsys, None, conf)
        process.communicate(b"")
    (descriptors,) = [each for each in found if each.get("check") == "descriptors"]
    assert descriptors["verdict"] == "warning"
    assert f"of 100 file descriptors of process {process.pid} are open" in str(descriptors["what"])
    assert (code, "a server runs on these folders" in err) == (2, True)
    assert "port" not in {each.get("check") for each in found}


@pytest.mark.real_clock
async def test_clocks_of_bookies_are_compared_by_their_web_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore(MemoryTree())
    await initialize_layout(store, rng=Random(1))
    for name, read_only in (("fast", False), ("right", True), ("away", False)):
        web = Endpoint(id="httpserver", host=name, port=8080, protocol="http")
        await bookies.register(store, name, BookieServiceInfo(endpoints=(web,)), read_only=read_only)
    await bookies.register(store, "mute", BookieServiceInfo(endpoints=(Endpoint(host="mute", port=1),)))
    found = await find_bookie_clocks(store, "/ledgers")

    def answer(request: httpx2.Request) -> httpx2.Response:
        if request.url.host == "away":
            raise httpx2.ConnectError("refused")
        ahead = 120 if request.url.host == "fast" else 0
        return httpx2.Response(200, headers={"date": email.utils.formatdate(time.time() + ahead, usegmt=True)})

    client = httpx2.AsyncClient
    monkeypatch.setattr(httpx2, "AsyncClient", lambda **given: client(transport=httpx2.MockTransport(answer), **given))
    checks = await trio.to_thread.run_sync(lambda: list(found.examine()))
    by = {next((name for name in ("fast", "right", "away") if name in each.what), "mute"): each for each in checks}
    assert {name: each.verdict for name, each in by.items()} == {
        "fast": BAD,
        "right": OK,
        "away": WARNING,
        "mute": OK,
    }
    assert "1 bookies have no web port" in by["mute"].what


class Answer(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@contextmanager
def demanding(authority: Authority, shown: Pair) -> Iterator[int]:
    """Serve a web port behind TLS that demands a certificate; yield its number."""
    options = authority.server(shown, require_certificate=True)
    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        server.socket = TlsFiles(options, server_side=True).context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


OF_BOOKIE = (
    "journalDirectories={folder}/j\nledgerDirectories={folder}/l\nallowLoopback=true\nadvertisedAddress=127.0.0.1\n"
)


@pytest.mark.real_clock
@pytest.mark.parametrize(
    ("name", "values"),
    [
        (
            "broker.conf",
            "clusterName=c\nmetadataStoreUrl=zk:127.0.0.1:2181\nbookkeeperTLSClientAuthentication=true\n"
            "bookkeeperTLSCertificateFilePath={certificate}\nbookkeeperTLSKeyFilePath={key}\n"
            "bookkeeperTLSTrustCertsFilePath={trust}\n",
        ),
        (
            "bk_server.conf",
            OF_BOOKIE + "tlsProviderFactoryClass=org.apache.bookkeeper.tls.TLSContextFactory\ntlsKeyStoreType=PEM\n"
            "tlsKeyStore={key}\ntlsCertificatePath={certificate}\ntlsTrustStoreType=PEM\ntlsTrustStore={trust}\n",
        ),
        (
            "bk_server.conf",
            OF_BOOKIE + "httpServerEnabled=true\nhttpServerTlsEnable=true\nhttpServerKeyStorePath={both}\n"
            "httpServerTrustStorePath={trust}\n",
        ),
    ],
)
def test_a_web_port_that_demands_a_certificate_is_shown_that_of_the_configuration(
    name: str, values: str, tmp_path: Path
) -> None:
    """The bookie's own certificate has expired: its clock is compared nevertheless."""
    authority = Authority(tmp_path)
    pair, both = authority.issue("own", file="own"), tmp_path / "both.pem"
    both.write_bytes(pair.key.read_bytes() + pair.certificate.read_bytes())
    conf = tmp_path / name
    given = {"certificate": pair.certificate, "key": pair.key, "both": both, "trust": authority.trust}
    conf.write_text(values.format(folder=tmp_path, **given))
    shown = read(conf, kind_of(conf)).shown
    assert shown is not None
    with demanding(authority, authority.issue("127.0.0.1", file="theirs", expired=True)) as number:
        clocks = BookieClocks(urls={"b": f"https://127.0.0.1:{number}"})
        [found] = clocks.examine(shown)
        assert (found.verdict, found.what[:21]) == (OK, "the clock of bookie b"), found
        [without] = clocks.examine(None)
        assert (without.verdict, "demands a certificate" in without.remedy) == (WARNING, True)
        pair.key.unlink()
        both.unlink()
        checks = list(clocks.examine(shown))
        assert [each.verdict for each in checks] == [WARNING, WARNING]
        assert str(shown.key_file) in checks[0].what


@pytest.mark.real_clock
def test_a_running_server_that_demands_a_certificate_is_shown_one(tmp_path: Path, capsys) -> None:
    authority = Authority(tmp_path)
    own = authority.issue("own", file="own")
    with demanding(authority, authority.issue("127.0.0.1", file="theirs")) as number:
        asked = ["doctor", "--url", f"https://127.0.0.1:{number}", "--trust-file", str(authority.trust)]
        files = ["--tls-cert-file", str(own.certificate), "--tls-key-file", str(own.key)]
        for more, verdict in (([], "BAD     reachable"), (files, "ok      reachable")):
            with pytest.raises(SystemExit):
                app([*asked, *more])
            assert verdict in capsys.readouterr().out
    with pytest.raises(SystemExit) as end:
        app([*asked, *files[:2]])
    assert end.value.code == 2
    assert "give both" in capsys.readouterr().err
