"""Racks of bookies by a program of the operator: networkTopologyScriptFileName.

    program host1 host2 ...    prints a location for each, separated by white space, such as /rack1 or /region1/rack1

It runs beside the event loop, in a session of its own, with a limit of time and of output. A call that fails, or prints
another number of locations than there are hosts, gives none: the bookies are in the default rack until the next call.

Source: BookKeeper's ScriptBasedMapping, whose program has neither limit.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

import trio

from autorecovery.config import RACK_MAP_CLASSES, AutoRecoveryConfig
from quire.ledger.bookies.watcher import Locate
from quire.ledger.placement.topology import clean_location
from quire.service.errors import ConfigError
from quire.service.log import get_logger

log = get_logger(__name__)

KEY: Final = "networkTopologyScriptFileName"
RUN_S: Final = 10.0
"""Seconds that one call may take."""
OUTPUT_MAX: Final = 1 << 20
"""Bytes that one call may print."""


def rack_script(config: AutoRecoveryConfig) -> Locate | None:
    """Return what asks for racks; None: Pulsar's rack map has them, or nothing. ConfigError: it cannot be executed."""
    path = config.rack_script
    if not path or config.rack_class in RACK_MAP_CLASSES:
        return None
    if not os.path.isfile(path):
        raise ConfigError(f"{KEY}={path}: there is no such file; name a program, or remove the key")
    if not os.access(path, os.X_OK):
        raise ConfigError(f"{KEY}={path}: it is not executable; chmod +x {path}")
    return RackScript(path, config.rack_script_arguments_max).locate


class _ScriptError(Exception):
    """A call gave no locations. Passing: it is made again later."""


class RackScript:
    """Program that prints the locations of hosts. `hosts_max`: hosts in one call."""

    def __init__(self, path: str, hosts_max: int) -> None:
        self._path = path
        self._hosts_max = hosts_max

    async def locate(self, hosts: Sequence[str]) -> Mapping[str, str]:
        """Return the locations of hosts; those that it has none for are left out, with a line in the log."""
        found: dict[str, str] = {}
        for start in range(0, len(hosts), self._hosts_max):
            asked = hosts[start : start + self._hosts_max]
            try:
                printed = (await self._run(asked)).split()
                if len(printed) != len(asked):
                    raise _ScriptError(f"{len(printed)} locations for {len(asked)} hosts")
            except (OSError, UnicodeDecodeError, _ScriptError) as error:
                log.warning("no racks from the script", script=self._path, hosts=",".join(asked), reason=str(error))
                continue
            for host, text in zip(asked, printed, strict=True):
                location = clean_location(text)
                if location is not None:
                    found[host] = location
        return found

    async def _run(self, hosts: Sequence[str]) -> str:
        """Return what the program prints. OSError, UnicodeDecodeError, _ScriptError."""
        process = await trio.lowlevel.open_process(
            [self._path, *hosts],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            with trio.fail_after(RUN_S):
                output = await self._read(process)
                status = await process.wait()
        except trio.TooSlowError as error:
            raise _ScriptError(f"no end in {RUN_S:g} s") from error
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)  # and its children
            with trio.CancelScope(shield=True):
                await process.wait()
                if process.stdout is not None:
                    await process.stdout.aclose()
        if status:
            raise _ScriptError(f"exit code {status}")
        return output.decode()

    async def _read(self, process: trio.Process) -> bytes:
        assert process.stdout is not None
        output = bytearray()
        async for chunk in process.stdout:
            output += chunk
            if len(output) > OUTPUT_MAX:
                raise _ScriptError(f"more than {OUTPUT_MAX} bytes printed")
        return bytes(output)
