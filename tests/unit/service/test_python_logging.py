"""BOOKIE_LOG_CONF (quire/service/python_logging, quire/servers/logging_setup): files, levels, log4j, slow handlers."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from quire.servers import logging_setup
from quire.service import log
from quire.service.errors import ConfigError
from quire.service.python_logging import sink
from quire.service.python_logging.files import apply, kind_of
from quire.service.python_logging.sink import DROPPED, HandlerThread

TOML = """\
version = 1
[formatters.line]
format = "%(levelname)s %(name)s %(message)s"
[handlers.file]
class = "logging.FileHandler"
filename = "FILE"
formatter = "line"
[loggers."bookie.journal"]
level = "DEBUG"
[root]
level = "WARNING"
handlers = ["file"]
"""
INI = """\
[loggers]
keys=root,journal
[handlers]
keys=file
[formatters]
keys=line
[logger_root]
level=WARNING
handlers=file
[logger_journal]
level=DEBUG
qualname=bookie.journal
handlers=
[handler_file]
class=FileHandler
args=("FILE",)
formatter=line
[formatter_line]
format=%(levelname)s %(name)s %(message)s
"""
JSON = json.dumps(
    {
        "formatters": {"line": {"format": "%(levelname)s %(name)s %(message)s"}},
        "handlers": {"file": {"class": "logging.FileHandler", "filename": "FILE", "formatter": "line"}},
        "loggers": {"bookie.journal": {"level": "DEBUG"}},
        "root": {"level": "WARNING", "handlers": ["file"]},
    }
)
LOG4J = {
    "log4j.properties": "log4j.rootLogger=INFO, ROLLINGFILE\n",
    "log4j2.properties": "# a comment\nrootLogger.level = info\n",
    "appenders.properties": "appenders = console\n",
    "log4j2.xml": '<?xml version="1.0"?>\n<Configuration status="INFO"></Configuration>',
    "log4j.xml": '<log4j:configuration xmlns:log4j="x"/>',
    "log4j2.yaml": "Configuration:\n  status: INFO\n",
}


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    threads = set(threading.enumerate())
    yield
    log.write_to(None)
    log.configure()
    for each in root.handlers:
        if each not in handlers:
            each.close()
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.getLogger("bookie.journal").setLevel(logging.NOTSET)
    assert {each for each in threading.enumerate() if each.name != "log handlers"} <= threads


def written(path: Path, monkeypatch: pytest.MonkeyPatch, **levels: str) -> list[str]:
    """Write some events with the configuration; return the lines of its file."""
    made: list[HandlerThread] = []
    start = HandlerThread.start

    def started(thread: HandlerThread) -> None:
        made.append(thread)
        start(thread)

    monkeypatch.setattr(HandlerThread, "start", started)
    monkeypatch.setenv("BOOKIE_LOG_CONF", str(path))
    logging_setup.configure("info", levels, lambda: 1_700_000_000_123)
    journal, other = log.get_logger("bookie.journal.writer"), log.get_logger("bookie.other")
    journal.debug("group written", entries=3)
    other.info("not wanted")
    other.warning("disk slow", folder="/a b")
    made[0].close()
    return (path.parent / "file.log").read_text().splitlines()


@pytest.mark.parametrize(("name", "text"), [("l.toml", TOML), ("l.ini", INI), ("l.json", JSON), ("bare.conf", INI)])
def test_events_go_to_the_handlers_of_the_file_and_obey_its_levels(
    name: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / name
    path.write_text(text.replace("FILE", str(tmp_path / "file.log")))
    assert written(path, monkeypatch) == [
        'DEBUG bookie.journal.writer event="group written" entries=3',
        'WARNING bookie.other event="disk slow" folder="/a b"',
    ]
    assert log.levels() == {"": "warning", "bookie.journal": "debug"}


def test_levels_of_the_configuration_of_the_server_are_in_front(tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "l.toml"
    path.write_text(TOML.replace("FILE", str(tmp_path / "file.log")))
    lines = written(path, monkeypatch, **{"bookie.journal": "error", "bookie.other": "info"})
    assert [line.split()[0] for line in lines] == ["INFO", "WARNING"]


@pytest.mark.parametrize("name", LOG4J)
def test_a_log4j_file_is_named_as_such_with_the_remedy(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(LOG4J[name])
    with pytest.raises(
        ConfigError, match=r"is a log4j configuration.*Unset BOOKIE_LOG_CONF, or name a file for Python"
    ):
        apply(path)


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("l.toml", "version = 1\n[root]\nhandlers = ['none']\n", "toml"),
        ("l.toml", "x =", "toml"),
        ("l.json", "[1]", "JSON object"),
        ("l.json", '{"version": 2}', "version"),
        ("l.ini", "[loggers]\nkeys=root\n", "ini"),
        ("l.toml", "\0" * ((1 << 20) + 1), "larger than"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_with_its_reason(name: str, text: str, why: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(ConfigError, match=why) as raised:
        apply(path)
    assert str(path) in str(raised.value)
    assert "Unset BOOKIE_LOG_CONF" in str(raised.value)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        apply(tmp_path / "none.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="UTF-8"):
        apply(tmp_path / "bytes.toml")


def test_a_configuration_without_a_suffix_is_told_by_its_content() -> None:
    assert kind_of("", '{"version": 1}') == "json"
    assert kind_of("", "[loggers]\nkeys=root") == "ini"
    assert kind_of("", "version = 1\n[root]\n") == "toml"


class Slow(logging.Handler):
    """A handler that waits until it may go on."""

    def __init__(self) -> None:
        super().__init__()
        self.entered, self.may_go = threading.Event(), threading.Event()
        self.seen: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.entered.set()
        assert self.may_go.wait(10)
        self.seen.append(record)


def test_a_slow_handler_never_delays_the_server_and_dropped_lines_are_counted() -> None:
    slow = Slow()
    logging.getLogger().addHandler(slow)
    handlers = HandlerThread(lambda pairs: str(pairs["event"]), queue_max=2)
    handlers.start()
    handlers.write("info", {"logger": "a", "event": "0"}, 1.0)
    assert slow.entered.wait(10)
    for number in range(1, 8):
        handlers.write("info", {"logger": "a", "event": str(number)}, 1.0)
    slow.may_go.set()
    handlers.close()
    seen = [each.getMessage() for each in slow.seen]
    assert [each for each in seen if each != DROPPED] == ["0", "1", "2"]
    assert sum(each.__dict__["pairs"].get("dropped", 0) for each in slow.seen) == 5


@pytest.mark.parametrize("queue_max", [1, 5])
def test_a_handler_that_hangs_does_not_keep_the_process(queue_max: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink, "CLOSE_TIMEOUT_S", 0.05)
    slow = Slow()
    logging.getLogger().addHandler(slow)
    handlers = HandlerThread(lambda _: "", queue_max=queue_max)
    handlers.start()
    handlers.write("info", {"logger": "a"}, 1.0)
    assert slow.entered.wait(10)
    handlers.write("info", {"logger": "a"}, 1.0)
    handlers.close()
    assert handlers._thread.is_alive()
    slow.may_go.set()
    monkeypatch.setattr(sink, "CLOSE_TIMEOUT_S", 10)
    handlers.close()
    assert not handlers._thread.is_alive()


def test_a_record_has_the_time_the_level_and_the_pairs_of_the_event() -> None:
    slow = Slow()
    slow.may_go.set()
    logging.getLogger().addHandler(slow)
    handlers = HandlerThread(log.render)
    handlers.start()
    handlers.write("error", {"logger": "a.b", "level": "error", "timestamp": "x", "event": "disk lost", "n": 7}, 12.5)
    handlers.close()
    [record] = slow.seen
    assert (record.name, record.levelname, record.created, record.msecs) == ("a.b", "ERROR", 12.5, 500)
    assert record.getMessage() == 'event="disk lost" n=7'
    assert (record.__dict__["event"], record.__dict__["pairs"]) == ("disk lost", {"n": 7})


def test_an_error_of_a_handler_does_not_end_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    class Broken(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise OSError("no socket")

    broken = Broken()
    logging.getLogger().addHandler(broken)
    handlers = HandlerThread(log.render)
    handlers.start()
    handlers.write("info", {"logger": "a", "event": "x"}, 1.0)
    handlers.write("info", {"logger": "a", "event": "y"}, 1.0)
    handlers.close()
    assert capsys.readouterr().err.count("no socket") == 2
