"""tools.profiling"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tools.profiling import main, table

HOT = "import time\ndef hot():\n    while True: sum(range(1000))\nhot()"


def test_a_function_counts_once_per_sample_though_it_calls_itself() -> None:
    rows = table(["main (a.py:1);walk (a.py:9);walk (a.py:9);leaf (a.py:3) 3", "main (a.py:1) 1", ""])
    assert rows[0] == "4 samples"
    assert [row.split(maxsplit=2) for row in rows[2:]] == [
        ["75.0%", "75.0%", "leaf (a.py:3)"],
        ["25.0%", "100.0%", "main (a.py:1)"],
    ]


def test_no_samples_are_said_to_be_none() -> None:
    assert table([]) == ["no samples: the process was idle, or has ended"]


def test_a_running_process_is_sampled(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", HOT])
    try:
        assert main(["--pid", str(process.pid), "--seconds", "1"]) == 0
        assert "hot (<string>:3)" in capsys.readouterr().out.splitlines()[2]
        svg = tmp_path / "flame.svg"
        assert main(["--pid", str(process.pid), "--seconds", "1", "--svg", str(svg)]) == 0
        assert "hot" in svg.read_text()
    finally:
        process.kill()
        process.wait()
