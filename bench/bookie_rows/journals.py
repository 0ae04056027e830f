"""Adds of 1 KB with two journal directories, each on a device of its own, beside one.

The devices are files with a file system, mounted as loop devices. That needs root, mkfs.ext4 and mount; without them
the journals are two folders on one device.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from bench.bookie_rows.adds import measure_adds
from bench.bookie_rows.run import QUIRE, Bound, Row, Run

SIZE, WINDOW = 1024, 1000
DEVICE_BYTES = 4 << 30
"""Size of the sparse file of a device; the journals are cut long before."""


@contextmanager
def loop_device(folder: Path) -> Iterator[bool]:
    """Mount a new file system at `folder` while the block runs; yield False, and a plain folder, if that fails."""
    folder.mkdir(parents=True)
    image = folder.with_suffix(".img")
    mounted = False
    try:
        with open(image, "wb") as file:
            os.truncate(file.fileno(), DEVICE_BYTES)
        with suppress(OSError, subprocess.CalledProcessError):
            subprocess.run(["mkfs.ext4", "-q", "-F", image], check=True, capture_output=True)
            subprocess.run(["mount", "-o", "loop", image, folder], check=True, capture_output=True)
            mounted = True
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", folder], check=True)
        image.unlink(missing_ok=True)
        shutil.rmtree(folder, ignore_errors=True)


def journal_rows(run: Run, seconds: float, warm: float) -> list[Row]:
    """Compare the rate with two journals with that of one, in each round."""
    row = Row(title="two journals / one, 1 KB adds", unit="x", bound=Bound(limit=0, better="more", alone=True))
    with ExitStack() as stack:
        devices = [run.folder / f"device-{number}" for number in range(3)]
        mounted = all([stack.enter_context(loop_device(device)) for device in devices])
        if not mounted:
            run.say("journals: no loop device can be mounted, the journals are folders of one device")
        groups = [
            stack.enter_context(run.clusters(name, {"journalDirectories": ",".join(map(str, folders))}, None))[0]
            for name, folders in (
                ("one-journal", [devices[0] / "journal"]),
                ("two-journals", [devices[1] / "journal", devices[2] / "journal"]),
            )
        ]
        for group in groups:
            measure_adds(group, 1, SIZE, WINDOW, warm)
        for number in range(run.rounds):
            one, two = [measure_adds(group, 1000 * (number + 1), SIZE, WINDOW, seconds) for group in groups]
            row.add(QUIRE, two[0] / one[0])
            run.say(
                f"journals, round {number + 1}: {one[0]:,.0f}/s with one, {two[0]:,.0f}/s with two; "
                f"{one[1]:.2f} and {two[1]:.2f} us"
            )
    return [row]
