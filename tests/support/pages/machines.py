"""Programs that stand for those of machines, so that the commands of a page act on a local cluster.

    ssh bk1 COMMAND          runs the command here; it then knows that it is on that machine
    systemctl start UNIT     starts, stops or restarts the process that is this machine's unit: `scripts/cluster`
    systemctl kill UNIT      SIGKILL

A unit is a process of a local cluster, by its name, or a process that a test has started, by its id: that can only be
stopped. `opt/MACHINE/quire`, if it exists beside the programs, is the installation of a machine.

They are files in a folder that comes first in PATH. The machines and units of a test are in a file beside them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[3]
_SSH = """#!/bin/sh
MACHINE="$1"; export MACHINE
shift
exec bash -e -c "$*"
"""
_SYSTEMCTL = """#!{python}
import json, os, signal, subprocess, sys, time
def gone(pid):
    try:
        return open(f"/proc/{{pid}}/stat").read().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True
verb, *units = [word for word in sys.argv[1:] if not word.startswith("--")]
nodes = json.load(open("{nodes}"))
verbs = {{"start": ["start"], "stop": ["stop"], "restart": ["stop", "start"], "kill": ["kill"]}}
for unit in units:
    name = os.environ.get("MACHINE", "") + " " + unit.removesuffix(".service")
    if name not in nodes:
        sys.exit("systemctl: " + name + " is not in this test")
    if isinstance(nodes[name], int):
        os.kill(nodes[name], signal.SIGTERM)
        while not gone(nodes[name]):
            time.sleep(0.05)
        continue
    own = "{opt}/" + os.environ.get("MACHINE", "") + "/quire/bin/python"
    python = own if os.path.exists(own) else sys.executable
    for each in verbs[verb]:
        command = [python, "-m", "tools.local_cluster", "--folder", "{cluster}", each, nodes[name]]
        code = subprocess.run(command, cwd="{root}", stdout=subprocess.DEVNULL).returncode
        if code:
            sys.exit(code)
"""


def programs(folder: Path, cluster: Path, units: Mapping[str, str | int]) -> Path:
    """Write the programs into a folder, and return it. `units`: the process by "MACHINE UNIT", or its id."""
    folder.mkdir(parents=True, exist_ok=True)
    nodes = folder / "units.json"
    nodes.write_text(json.dumps(units))
    texts = {
        "ssh": _SSH,
        "systemctl": _SYSTEMCTL.format(
            python=sys.executable, nodes=nodes, cluster=cluster, root=ROOT, opt=folder / "opt"
        ),
    }
    for name, text in texts.items():
        path = folder / name
        path.write_text(text)
        path.chmod(0o755)
    return folder
