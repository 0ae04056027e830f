"""LocalCluster: the processes of a cluster in one folder, started, signalled and waited for.

A process may be started and stopped by different programs, because its state is in the folder. Each is the leader of a
process group of its own, which gets the signals, so that ZooKeeper's Java goes with the `quire zookeeper` around it.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.procs import tree
from bench.waiting import poll_until
from tools.local_cluster.errors import ClusterError
from tools.local_cluster.metadata import initialize
from tools.local_cluster.plan import (
    COMMANDS,
    PORT_COUNTS,
    READY_LINES,
    Kind,
    Node,
    Plan,
    conf_text,
    settings_of,
)
from tools.local_cluster.ports import free_ports
from tools.local_cluster.rest import grant
from tools.local_cluster.security import CLIENT, Security
from tools.local_cluster.state import FILE, Pid, State, pid_of, read

READY_S = 90.0
STOP_S = 30.0
SIGNAL_S = 10.0
"""Time for SIGKILL, SIGSTOP or SIGCONT to take effect."""
_PR_SET_PDEATHSIG = 1

Say = Callable[[str], None]

_ours: dict[Pid, subprocess.Popen[bytes]] = {}
"""Children of this process, kept as long as it lives: they outlive their starter, and are zombies until they are waited
for."""


def _quiet(text: str) -> None:
    pass


class LocalCluster:
    """One cluster.

    `bound`: its processes end with this one (with the thread that starts them, which must live as long as the
    process)."""

    def __init__(self, folder: Path, state: State, *, bound: bool = False) -> None:
        self.folder = folder.absolute()
        self.state = state
        self._bound = bound
        self._offsets: dict[str, int] = {}

    @classmethod
    def make(
        cls, folder: Path, plan: Plan, *, bound: bool = False, ports: Mapping[str, tuple[int, ...]] | None = None
    ) -> LocalCluster:
        """Create a cluster without starting it. `ports`: those of some processes by name; the others get free ones.
        Raises ClusterError if the folder has one already."""
        if (folder / FILE).exists():
            raise ClusterError(f"{folder} already has a cluster: scripts/cluster down ends it")
        if folder.exists() and any(folder.iterdir()):
            raise ClusterError(f"{folder} has files of an earlier cluster: remove it, or use another folder")
        folder.mkdir(parents=True, exist_ok=True)
        nodes = [replace(node, ports=(ports or {}).get(node.name, node.ports)) for node in plan.nodes(free_ports)]
        made = cls(folder, State(plan=plan, nodes=nodes), bound=bound)
        if made.security is not None:
            made.security.make(node.name for node in nodes)
        for node in made.state.nodes:
            made.write_conf(node)
        made.state.write(made.folder)
        return made

    @classmethod
    def find(cls, folder: Path) -> LocalCluster:
        """Return the cluster in the folder. Raises StateError."""
        return cls(folder, read(folder))

    def refresh(self) -> None:
        """Load changes by other processes: started, stopped, added. Raises StateError if the cluster is gone."""
        self.state = read(self.folder)

    # --- addresses

    @property
    def service_url(self) -> str:
        return self.state.addresses.service_url

    @property
    def web_urls(self) -> list[str]:
        return self.state.addresses.web_urls

    @property
    def metadata_uri(self) -> str:
        return self.state.addresses.metadata_uri

    @property
    def security(self) -> Security | None:
        """Return its certificates, tokens and passwords; None: it has none."""
        return Security(self.folder) if self.state.plan.secure else None

    @property
    def shell_conf(self) -> Path:
        """Return a bk_server.conf with the cluster's address, for `quire shell` and the scripts of operators."""
        return self.folder / "shell.conf"

    def nodes(self, *kinds: Kind) -> list[Node]:
        return [node for node in self.state.nodes if not kinds or node.kind in kinds]

    def log(self, node: Node) -> str:
        path = node.log(self.folder)
        return path.read_text(errors="replace") if path.exists() else ""

    def pids(self, *kinds: Kind) -> list[int]:
        """Return the pids of running processes and all their descendants."""
        return [pid for node in self.nodes(*kinds) for pid in self.pids_of(node)]

    def pids_of(self, node: Node) -> list[int]:
        """Return the pids of a process and of all its descendants; none if it does not run."""
        return tree(self.state.pids[node.name].pid) if self.is_alive(node) else []

    # --- the whole cluster

    def up(self, say: Say = _quiet) -> None:
        """Start everything and wait until it is ready. Raises ClusterError."""
        say("starting ZooKeeper")
        self._start_all(self.nodes(Kind.ZOOKEEPER))
        say("creating the cluster's metadata")
        security = self.security
        initialize(self.folder, self.state.addresses, security)
        known: dict[str, object] = {
            "metadataServiceUri": self.metadata_uri,
            "zkTimeout": self.state.plan.session_timeout_ms,
        }
        self.shell_conf.write_text(conf_text(known | ({} if security is None else security.shell_settings())))
        for kind in (Kind.BOOKIE, Kind.BROKER, Kind.RECOVERY):
            nodes = self.nodes(kind)
            if nodes:
                say(f"starting {', '.join(node.name for node in nodes)}")
                self._start_all(nodes)
        if security is not None and self.nodes(Kind.BROKER):
            say(f"granting permissions to {CLIENT}")
            grant(security, self.web_urls[0])

    def _start_all(self, nodes: Iterable[Node]) -> None:
        launched = [node for node in nodes if not self.is_alive(node)]
        for node in launched:
            self.launch(node)
        for node in launched:
            self.wait_ready(node)

    def down(self, say: Say = _quiet) -> list[str]:
        """Stop everything, cleanly where possible, and forget it; return the names of killed processes. The folders
        stay."""
        killed = []
        for kinds in ((Kind.RECOVERY,), (Kind.BROKER,), (Kind.BOOKIE,), (Kind.ZOOKEEPER,)):
            running = [node for node in self.nodes(*kinds) if self.is_alive(node)]
            if running:
                say(f"stopping {', '.join(node.name for node in running)}")
            for node in running:
                self.resume(node)
                self.signal(node, signal.SIGTERM)
            deadline = time.monotonic() + STOP_S
            for node in running:
                if not self._wait_gone(node, max(0.0, deadline - time.monotonic())):
                    say(f"{node.name} does not stop: killing it")
                    self.kill(node)
                    killed.append(node.name)
        (self.folder / FILE).unlink(missing_ok=True)
        return killed

    def abandon(self) -> None:
        """Send SIGKILL to everything that runs."""
        for node in self.nodes():
            if self.is_alive(node):
                with suppress(ClusterError):
                    self.kill(node)

    # --- one process

    def write_conf(self, node: Node) -> None:
        own = node.folder(self.folder)
        own.mkdir(parents=True, exist_ok=True)
        if node.kind is Kind.ZOOKEEPER:
            (own / "myid").write_text(f"{node.number}\n")
        more = {} if self.security is None else self.security.settings(node)
        settings = settings_of(node, self.state.plan, self.state.addresses, self.folder, more)
        node.conf(self.folder).write_text(conf_text(settings))

    def command(self, node: Node) -> list[str]:
        """Return the command line of a process."""
        name, _ = COMMANDS[node.kind]
        level = self.state.plan.log_level
        more = ["--log-level", level] if level else []
        return [sys.executable, "-m", "quire.cli.main", name, "--conf", str(node.conf(self.folder)), *more]

    def launch(self, node: Node) -> None:
        """Start a process without waiting for it. Raises ClusterError if it runs."""
        if self.is_alive(node):
            raise ClusterError(f"{node.name} runs already")
        path = node.log(self.folder)
        self._offsets[node.name] = path.stat().st_size if path.exists() else 0
        with open(path, "ab") as log:
            child = subprocess.Popen(
                self.command(node),
                cwd=node.folder(self.folder),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=_die_with_parent if self._bound else None,
            )
        pid = pid_of(child.pid)
        assert pid is not None, "a child that nobody waited for is there, if only as a zombie"
        _ours[pid] = child
        self.state.pids[node.name] = pid
        self.state.write(self.folder)

    def start(self, node: Node) -> None:
        """Start a process and wait until it is ready. Raises ClusterError."""
        self.launch(node)
        self.wait_ready(node)

    def is_ready(self, node: Node) -> bool:
        """Return whether the last process launched here has printed that it is ready."""
        offset = self._offsets.get(node.name, 0)
        try:
            with open(node.log(self.folder), "rb") as log:
                log.seek(offset)
                said = log.read()
        except FileNotFoundError:
            return False
        return b"\n" + READY_LINES[node.kind].encode() in b"\n" + said and self.is_alive(node)

    def wait_ready(self, node: Node) -> None:
        """Wait until it is ready. Raises ClusterError if it ends, or takes longer."""
        if not poll_until(lambda: self.is_ready(node) or not self.is_alive(node), READY_S):
            raise ClusterError(f"{node.name} is not ready after {READY_S:g} s{self.tail(node)}")
        if not self.is_alive(node):
            raise ClusterError(f"{node.name} ended while it started{self.tail(node)}")

    def is_alive(self, node: Node) -> bool:
        pid = self.state.pids.get(node.name)
        if pid is None:
            return False
        child = _ours.get(pid)
        return child.poll() is None if child is not None else pid.alive

    def is_paused(self, node: Node) -> bool:
        pid = self.state.pids.get(node.name)
        return pid is not None and pid.paused

    def signal(self, node: Node, number: signal.Signals) -> None:
        """Send a signal to the process and all its descendants. Raises ClusterError if it does not run."""
        if not self.is_alive(node):
            raise ClusterError(f"{node.name} does not run{self.tail(node)}")
        with suppress(ProcessLookupError):
            os.killpg(self.state.pids[node.name].pid, number)

    def kill(self, node: Node) -> None:
        """Send SIGKILL, and wait until it is gone. Raises ClusterError if it had ended by itself."""
        self.signal(node, signal.SIGKILL)
        if not self._wait_gone(node, SIGNAL_S):
            raise ClusterError(f"{node.name} still runs {SIGNAL_S:g} s after SIGKILL")

    def stop(self, node: Node) -> None:
        """Send SIGTERM, and wait until it is gone. Raises ClusterError if it is not."""
        self.signal(node, signal.SIGTERM)
        if not self._wait_gone(node, STOP_S):
            raise ClusterError(f"{node.name} does not stop within {STOP_S:g} s{self.tail(node)}")

    def pause(self, node: Node) -> None:
        """Send SIGSTOP, and wait until it is stopped. Raises ClusterError if it is not."""
        self.signal(node, signal.SIGSTOP)
        self._wait_paused(node, paused=True)

    def resume(self, node: Node) -> None:
        """Send SIGCONT, and wait until it runs. Raises ClusterError if it does not."""
        self.signal(node, signal.SIGCONT)
        self._wait_paused(node, paused=False)

    def _wait_paused(self, node: Node, *, paused: bool) -> None:
        if not poll_until(lambda: self.is_paused(node) is paused or not self.is_alive(node), SIGNAL_S):
            raise ClusterError(f"{node.name} {'runs on' if paused else 'stands still'} {SIGNAL_S:g} s after the signal")

    def add_bookie(self) -> Node:
        """Add a bookie, and wait until it is ready."""
        kind = Kind.BOOKIE
        number = max(node.number for node in self.nodes(kind)) + 1
        taken = [port for node in self.nodes() for port in node.ports]
        ports = free_ports(PORT_COUNTS[kind], taken)
        node = Node(name=f"{kind.value}{number}", kind=kind, ports=tuple(ports))
        self.state.nodes.append(node)
        self.state.plan = replace(self.state.plan, bookies=self.state.plan.bookies + 1)
        if self.security is not None:
            self.security.issue(node.name)
        self.write_conf(node)
        self.start(node)
        return node

    def errors(self) -> list[str]:
        """Return the lines of the logs at level ERROR, each with its process."""
        found = []
        for node in self.nodes():
            for line in self.log(node).splitlines():
                if " level=error " in line or line.startswith("Traceback"):
                    found.append(f"{node.name}: {line}")
        return found

    def tail(self, node: Node) -> str:
        """Return the end of its log, for a message."""
        return "".join(f"\n    {line}" for line in self.log(node).splitlines()[-15:])

    def verify_replicas(self) -> dict[str, Any]:
        """Read every copy of every ledger; return the last line of `verify-replicas --json`. Raises ClusterError if
        they cannot be read."""
        command = [sys.executable, "-m", "quire.cli.operations", "verify-replicas", "--json"]
        command += ["--conf", str(self.shell_conf)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if not done.stdout:
            raise ClusterError(f"the copies cannot be read: {done.stderr}")
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found

    def _wait_gone(self, node: Node, seconds: float) -> bool:
        return poll_until(lambda: not self.is_alive(node), seconds)


def _die_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
