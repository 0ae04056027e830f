"""The calls of tests/golden/admin-client by Pulsar's own PulsarAdmin and client. As a program it records the answers of
Apache Pulsar 4.2.4; scripts/record_admin_client runs it.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.interop.java_client import run
from tests.interop.secured import Secured
from tests.support.admin_answers import CALLS, FOLDER, answers
from tests.support.rest_answers import Answers, written

OUTPUT = FOLDER / "pulsar-4.2.4.txt"
DEADLINE_S = 600.0
_PORTS = ("port", "web", "port with TLS", "web with TLS")


def call(secured: Secured) -> Answers:
    """Make all calls to the running server of these files, and return the answer of each."""
    printed = run("Calls", str(secured.clients()), str(CALLS), seconds=DEADLINE_S)
    printed = "".join(line for line in printed.splitlines(keepends=True) if not line.startswith("SLF4J"))
    return answers(printed, dict(zip(secured.ports, _PORTS, strict=True)))


def main() -> None:
    """Start the original with these files, and write its answers."""
    with tempfile.TemporaryDirectory() as folder:
        secured = Secured(Path(folder))
        with secured.pulsar():
            found = call(secured)
    OUTPUT.write_text(written(found))


if __name__ == "__main__":
    main()
