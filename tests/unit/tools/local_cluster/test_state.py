"""State of a local cluster between commands."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from tests.support.refusals import refuses
from tests.support.waiting import wait_until
from tools.local_cluster.errors import StateError
from tools.local_cluster.plan import Kind, Plan
from tools.local_cluster.state import Pid, State, pid_of, read


def a_state(**settings: object) -> State:
    plan = Plan(brokers=2, conf={Kind.BROKER: {"key": "value"}})
    return State(plan=plan, nodes=plan.nodes(lambda count: list(range(20_000, 20_000 + count))))


def test_what_is_written_is_read(tmp_path):
    state = a_state()
    state.pids["bookie1"] = Pid(123, 456)
    state.write(tmp_path)
    assert read(tmp_path) == state
    assert [path.name for path in tmp_path.iterdir()] == ["cluster.json"]


def test_a_process_is_found_by_its_name_and_by_its_address():
    state = a_state()
    bookie = state.node("bookie2")
    assert state.node(bookie.address) is bookie
    refuses(StateError, lambda: state.node("bookie9"), "there is no bookie9 in this cluster, but zk1")


def test_no_cluster_is_told_as_that(tmp_path):
    refuses(StateError, lambda: read(tmp_path), "create one with scripts/cluster up")


def test_another_process_under_the_same_pid_is_not_it():
    own = pid_of(os.getpid())
    assert own is not None
    assert own.alive
    assert not Pid(own.pid, own.started - 1).alive


def test_a_stopped_process_lives_and_is_paused_and_a_zombie_does_not_live():
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    found = pid_of(child.pid)
    assert found is not None
    child.send_signal(signal.SIGSTOP)
    wait_until(lambda: found.paused)
    assert found.alive
    child.kill()
    wait_until(lambda: not found.alive)
    assert not found.paused
    child.communicate()
