"""For every test: the order of the stages, and no ERROR in the log that the test did not announce.

def test_a_failed_sync_is_final(expect_error):
    expect_error("journal cannot be written")        # a part of the event's name; it must then come

@pytest.mark.expect_error("journal cannot be written")      # the same, as a marker
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator

import hypothesis  # before any server freezes what is imported: its plugin warns of that
import pytest

from quire.service import log
from tests.support import effort

pytest_plugins = ("tests.support.async_tests", "tests.support.universes")

# No test is a matter of how fast the machine is just now. With `--full` there are as many examples as Hypothesis itself
# takes.
for _profile, _examples in (("quire", 30), (effort.FULL, 100)):
    hypothesis.settings.register_profile(
        _profile,
        deadline=None,
        max_examples=_examples,
        suppress_health_check=[hypothesis.HealthCheck.too_slow],
        print_blob=True,
    )
hypothesis.settings.load_profile("quire")

STAGES = ("unit", "golden", "conformance", "mutants", "simulation", "cluster", "spark", "interop")


@pytest.fixture(autouse=True)
def log_events(request: pytest.FixtureRequest) -> Iterator[list[log.Event]]:
    """Every log event of the test so far, as dicts; afterwards each error must be an announced one, and have come."""
    announced: list[str] = [name for mark in request.node.iter_markers("expect_error") for name in mark.args]
    request.node.stash[_ANNOUNCED] = announced
    with log.captured() as events:
        yield events
    errors = [event for event in events if log.LEVELS[event["level"]] >= log.LEVELS["error"]]
    unannounced = [event for event in errors if not any(name in event["event"] for name in announced)]
    missing = [name for name in announced if not any(name in event["event"] for event in errors)]
    if unannounced:
        pytest.fail(f"{len(unannounced)} errors in the log that nobody announced, first {unannounced[0]}")
    if missing:
        pytest.fail(f"announced, but not in the log as an error: {missing}")


_ANNOUNCED = pytest.StashKey[list[str]]()


@pytest.fixture
def expect_error(request: pytest.FixtureRequest, log_events: list[log.Event]) -> Callable[[str], None]:
    """Announce an ERROR by a part of its event name."""
    announced: list[str] = request.node.stash[_ANNOUNCED]
    return announced.append


# Almost all that the collection of tests makes lives to the end, so that looking for garbage among it is wasted time.
gc.disable()


def pytest_collection_finish() -> None:
    """Take modules and collected tests, which live to the end, out of every later garbage collection."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
    gc.enable()


def _stage(item: pytest.Item) -> str:
    parts = item.nodeid.split("/")
    return parts[1] if len(parts) > 2 and parts[1] in STAGES else ""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Quick ones first; within a stage as collected."""
    order = {stage: number for number, stage in enumerate(STAGES)}
    items.sort(key=lambda item: order.get(_stage(item), len(order)))


class _StageLines:
    """Says which stage begins, and with how many tests."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._counts: dict[str, int] = {}
        self._current = ""

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        for item in session.items:
            self._counts[_stage(item)] = self._counts.get(_stage(item), 0) + 1

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> None:
        stage = _stage(item)
        if stage and stage != self._current:
            self._current = stage
            reporter = self._config.pluginmanager.get_plugin("terminalreporter")
            if reporter is not None:
                reporter.ensure_newline()
                reporter.write_line(f"{stage}: {self._counts[stage]} tests")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("markexpr") != "not full":
        hypothesis.settings.load_profile(effort.FULL)
    config.addinivalue_line("markers", "expect_error(name, ...): errors that the log of this test must show")
    config.pluginmanager.register(_StageLines(config), "quire-stage-lines")
