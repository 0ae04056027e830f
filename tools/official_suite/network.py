"""The ports and the network of the suite.

The suite has fixed ports, and one test connects to 192.0.2.1, an address for documentation, at which packets have to be
lost. Where a port is taken, or that address answers, the command starts itself again in a network namespace with a
loopback of its own, and with an interface to that address that leads nowhere."""

from __future__ import annotations

import os
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Sequence
from typing import NoReturn

from tools.official_suite.errors import SuiteError

BROKER_PORT, WEB_PORT = 6650, 8080
BROKER_TLS_PORT, WEB_TLS_PORT = 6651, 8443
ISOLATED = "QUIRE_OFFICIAL_SUITE_ISOLATED"
"""Environment variable that is set inside the namespace."""
_LOST = ("192.0.2.1", 1234)
_LOST_S = 0.5
"""Time without an answer after which the address is taken for one at which packets are lost."""
_SET_UP = """set -e
ip link set lo up
ip link add hole0 type veth peer name hole1
ip address add 192.0.2.9/24 dev hole0
ip link set hole0 up
ip link set hole1 up
ip neighbour add 192.0.2.1 lladdr 02:00:00:00:00:01 dev hole0
"""


def obstacle() -> str:
    """Return why the suite cannot run in the network of this machine; an empty text if it can."""
    for port in (BROKER_PORT, WEB_PORT, BROKER_TLS_PORT, WEB_TLS_PORT):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError as error:
                return f"port {port} is not free ({error.strerror})"
    with socket.socket() as probe:
        probe.settimeout(_LOST_S)
        try:
            probe.connect(_LOST)
        except TimeoutError:
            return ""
        except OSError as error:
            return f"packets to {_LOST[0]} are not lost ({error.strerror})"
    return f"packets to {_LOST[0]} are not lost (it accepts connections)"


def isolate(arguments: Sequence[str]) -> NoReturn:
    """Replace this process by the same command in a network namespace. Raises SuiteError."""
    for program in ("unshare", "ip"):
        if shutil.which(program) is None:
            raise SuiteError(f"a network namespace needs the program {program} (Linux: util-linux, iproute2)")
    unshare = ["unshare", *([] if os.geteuid() == 0 else ["--map-root-user"]), "--net"]
    tried = subprocess.run([*unshare, "sh", "-c", _SET_UP], capture_output=True, text=True, check=False)
    if tried.returncode:
        raise SuiteError(f"a network namespace cannot be made: {tried.stderr.strip()}")
    command = shlex.join([sys.executable, "-m", "tools.official_suite", *arguments])
    os.execvpe("unshare", [*unshare, "sh", "-c", f"{_SET_UP}exec {command}"], os.environ | {ISOLATED: "1"})
