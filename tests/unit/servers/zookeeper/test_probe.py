"""Probe of a ZooKeeper server: where its zoo.cfg has it listen, and how it is asked."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from quire.servers.zookeeper.probe import ZooKeeperServerError, probe_of
from tests.support.certificates import Authority
from tests.support.refusals import refuses


def conf_of(folder: Path, **settings: object) -> Path:
    conf = folder / "zoo.cfg"
    conf.write_text("".join(f"{key.replace('__', '.')}={value}\n" for key, value in settings.items()))
    return conf


def store_of(folder: Path, authority: Authority) -> Path:
    """Return a file with a key and its certificate, as ZooKeeper reads it."""
    pair = authority.issue("127.0.0.1", file="zookeeper")
    store = folder / "store.pem"
    store.write_bytes(pair.key.read_bytes() + pair.certificate.read_bytes())
    return store


@contextmanager
def answering(context: ssl.SSLContext | None, answer: bytes) -> Iterator[int]:
    """Serve one client, which sends `srvr`; yield the port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            try:
                with listener.accept()[0] as raw:
                    raw.settimeout(5)
                    stream = raw if context is None else context.wrap_socket(raw, server_side=True)
                    with stream:
                        assert stream.recv(4) == b"srvr"
                        stream.sendall(answer)
            except OSError:
                return

        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1]
        thread.join()


@pytest.mark.parametrize(("answer", "serves"), [(b"Zookeeper version: 3.9", True), (b"not currently serving", False)])
def test_the_port_without_tls_is_asked_where_there_is_one(tmp_path: Path, answer: bytes, serves: bool) -> None:
    with answering(None, answer) as port:
        found = probe_of(conf_of(tmp_path, secureClientPort=1, clientPort=port, clientPortAddress="0.0.0.0"))
        assert found.address == f"127.0.0.1:{port}"
        assert found.answers() is serves


def test_the_port_with_tls_is_asked_with_the_certificate_of_the_server_itself(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    store = store_of(tmp_path, authority)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=authority.trust)
    context.load_cert_chain(store)
    context.verify_mode = ssl.CERT_REQUIRED
    with answering(context, b"Zookeeper version: 3.9") as port:
        more = {"ssl__keyStore__location": store}
        found = probe_of(conf_of(tmp_path, secureClientPort=port, secureClientPortAddress="127.0.0.1", **more))
        assert found.answers()
    assert not found.is_taken()
    assert not found.answers()


def test_stores_that_cannot_be_read_are_refused_unless_no_certificate_is_asked_for(tmp_path: Path) -> None:
    store = {"ssl__keyStore__location": tmp_path / "zookeeper.jks"}
    conf = conf_of(tmp_path, secureClientPort=1, **store)
    refuses(ZooKeeperServerError, lambda: probe_of(conf), "zookeeper.jks is needed .*keytool")
    conf = conf_of(tmp_path, secureClientPort=1, ssl__clientAuth="none", **store)
    assert probe_of(conf).context is not None
    refuses(
        ZooKeeperServerError, lambda: probe_of(conf_of(tmp_path, secureClientPort=1)), "needs ssl.keyStore.location"
    )
