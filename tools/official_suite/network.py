"""The ports of the suite, and a network in which they are free.

The suite has fixed ports. With --isolated, the command starts itself again in a network namespace with a loopback of
its own. One test needs an address at which packets are lost: it connects to 192.0.2.1, an address for documentation.
The namespace has an interface to it that leads nowhere; outside, the machine's router has to drop the packets."""

from __future__ import annotations

import os
import shlex
import shutil
import socket
import sys
from collections.abc import Sequence
from typing import NoReturn

from tools.official_suite.errors import SuiteError

BROKER_PORT, WEB_PORT = 6650, 8080
ISOLATED = "QUIRE_OFFICIAL_SUITE_ISOLATED"
"""Environment variable that is set inside the namespace."""
_SET_UP = """set -e
ip link set lo up
ip link add hole0 type veth peer name hole1
ip address add 192.0.2.9/24 dev hole0
ip link set hole0 up
ip link set hole1 up
ip neighbour add 192.0.2.1 lladdr 02:00:00:00:00:01 dev hole0
"""


def isolate(arguments: Sequence[str]) -> NoReturn:
    """Replace this process by the same command in a network namespace. Raises SuiteError."""
    for program in ("unshare", "ip"):
        if shutil.which(program) is None:
            raise SuiteError(f"--isolated needs the program {program} (Linux: util-linux, iproute2)")
    command = shlex.join([sys.executable, "-m", "tools.official_suite", *arguments])
    names = [] if os.geteuid() == 0 else ["--map-root-user"]
    environment = os.environ | {ISOLATED: "1"}
    shell = ["sh", "-c", f"{_SET_UP}exec {command}"]
    os.execvpe("unshare", ["unshare", *names, "--net", *shell], environment)


def require_ports() -> None:
    """Raise SuiteError if another server has one of the ports."""
    for port in (BROKER_PORT, WEB_PORT):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError as error:
                raise SuiteError(
                    f"port {port} is not free ({error.strerror}): stop its server, or use --isolated"
                ) from None
