"""Walk: the commands of a page, run in its order, and compared with what the page says about them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from tests.support.pages.page import FILE, INTERRUPT, Command, missing, read, substituted

ROOT = Path(__file__).parents[3]
COMMAND_S = 300.0
WAIT_S = 60.0
PAUSE_S = 0.3
"""Pause between two runs of a repeated command, which takes longer itself."""


class Walk:
    """One page. `names`: what it calls the addresses and files of this test, each with the real one; each has to be in
    the page. `web`, `service`: addresses that commands use without naming them. `programs`: folder of programs that
    stand for those of the machines (see `machines`)."""

    def __init__(
        self,
        page: str,
        folder: Path,
        names: Mapping[str, object],
        *,
        web: str = "",
        service: str = "",
        programs: Path | None = None,
        wait_s: float = WAIT_S,
    ) -> None:
        self.page = ROOT / "docs" / page
        self.folder = folder
        self.names = dict(names)
        self.outputs: list[str] = []
        """Outputs so far, in order."""
        self._commands = read(self.page)
        self._at = 0
        self._wait_s = wait_s
        self._terminals: list[subprocess.Popen[bytes]] = []
        folder.mkdir(parents=True, exist_ok=True)
        path = [str(programs)] if programs is not None else []
        path += [str(Path(sys.executable).parent), os.environ["PATH"]]
        self._environment = {
            **os.environ,
            "PATH": os.pathsep.join(path),
            "COLUMNS": "160",
            "NO_COLOR": "1",
            "XDG_CONFIG_HOME": str(folder / "config"),
        }
        if web:
            self._environment |= {"QUIRE_ADMIN_URL": web, "QUIRE_SERVICE_URL": service}
            contexts = folder / "config/quire/contexts.toml"
            contexts.parent.mkdir(parents=True, exist_ok=True)
            contexts.write_text(f'current = "test"\n\n[contexts."test"]\nurl = "{web}"\n')
            contexts.chmod(0o600)
        text = self.page.read_text()
        unused = [name for name in names if name not in text]
        assert not unused, f"{self.page} does not have {', '.join(unused)}"

    def __enter__(self) -> Walk:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.close_terminals()
        if kind is None:
            left = [each.line for each in self._commands[self._at :]]
            assert not left, f"{self.page}: the commands of lines {left} were not run"

    def section(self, name: str) -> str:
        """Run the commands under a heading, which are the next ones; return the output of the last."""
        output = ""
        ran = False
        while self._at < len(self._commands) and self._commands[self._at].section == name:
            output, ran = self.next(), True
        assert ran, f"{self.page}: the next commands are not under {name!r}"
        return output

    def next(self) -> str:
        """Run the next command; return its output."""
        command = self._commands[self._at]
        self._at += 1
        output = self._run(command)
        self.outputs.append(output)
        return output

    def plant(self, text: str) -> None:
        """Run a command that is not of the page: what had happened before."""
        code, output = self._shell(text)
        assert code == 0, f"{text}\nended with {code}:\n{output}"

    def _run(self, command: Command) -> str:
        text = substituted(command.text, self.names)
        wanted = [substituted(line, self.names) for line in command.output]
        where = f"{self.page}:{command.line}\n{text}"
        if command.mode == INTERRUPT:
            return self._interrupt(where)
        if command.mode == FILE:
            (self.folder / command.path).write_text(text)
            return ""
        if command.mode == "terminal":
            return self._in_terminal(text, wanted, where)
        deadline = time.monotonic() + self._wait_s
        while True:
            code, output = self._shell(text)
            line = missing(wanted, output)
            if command.mode == "until":
                if code == 0 and line is None:
                    return output
                if time.monotonic() < deadline:
                    time.sleep(PAUSE_S)
                    continue
            failed = code != 0 if command.mode != "fails" else code == 0
            assert not failed, f"{where}\nended with {code}:\n{output}"
            assert line is None, f"{where}\ndoes not print\n{line}\nbut\n{output}"
            return output

    def _shell(self, text: str) -> tuple[int, str]:
        ran = subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", text],
            cwd=self.folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=COMMAND_S,
        )
        return ran.returncode, ran.stdout

    def _in_terminal(self, text: str, wanted: list[str], where: str) -> str:
        path = self.folder / f"terminal{len(self._terminals)}.log"
        with open(path, "wb") as log:
            child = subprocess.Popen(
                ["bash", "-c", text],
                cwd=self.folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._terminals.append(child)
        deadline = time.monotonic() + self._wait_s
        while (line := missing(wanted, output := path.read_text(errors="replace"))) is not None:
            assert child.poll() is None, f"{where}\nended with {child.returncode}:\n{output}"
            assert time.monotonic() < deadline, f"{where}\ndoes not print\n{line}\nbut\n{output}"
            time.sleep(0.05)
        return output

    def _interrupt(self, where: str) -> str:
        """Send SIGINT to what runs in the last terminal, and wait for its end."""
        assert self._terminals, f"{where}: there is no terminal"
        child = self._terminals.pop()
        os.killpg(child.pid, signal.SIGINT)
        child.wait(WAIT_S)
        return ""

    def close_terminals(self) -> None:
        """Send SIGTERM to what runs in terminals, and wait for its end."""
        for child in reversed(self._terminals):
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGTERM)
                try:
                    child.wait(30)
                except subprocess.TimeoutExpired:
                    os.killpg(child.pid, signal.SIGKILL)
                    child.wait()
        self._terminals.clear()
