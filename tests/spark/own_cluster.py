"""A standalone cluster of Spark: a master and two workers as processes, on two addresses of this machine."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from tests.support.server import free_port
from tests.support.waiting import wait_until

HOSTS = ("127.0.0.1", "127.0.0.2")
"""Hosts of the workers: Spark starts no speculative attempt on the host of the first one."""
START_S = 180.0
JOB_S = 900.0
_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


class OwnCluster:
    """Use `own_cluster`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.master = f"spark://127.0.0.1:{free_port()}"
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        port = self.master.rpartition(":")[2]
        deploy = "org.apache.spark.deploy"
        self._run(
            "master", HOSTS[0], f"{deploy}.master.Master", "--host", HOSTS[0], "--port", port, "--webui-port", "0"
        )
        wait_until(lambda: "New state: ALIVE" in self.log("master"), "Spark's master serves", START_S)
        for number, host in enumerate(HOSTS):
            size = ("--cores", "1", "--memory", "1g", "--work-dir", str(self.folder / f"work-{number}"))
            name = f"worker-{number}"
            self._run(name, host, f"{deploy}.worker.Worker", "--host", host, "--webui-port", "0", *size, self.master)
        for number in range(len(HOSTS)):
            wait_until(partial(self._is_registered, f"worker-{number}"), "a worker serves", START_S)

    def _is_registered(self, name: str) -> bool:
        return "Successfully registered" in self.log(name)

    def log(self, name: str) -> str:
        path = self.folder / f"{name}.log"
        return path.read_text() if path.exists() else ""

    def submit(
        self, script: Path, *arguments: str, archive: Path | None = None, conf: Mapping[str, object] | None = None
    ) -> str:
        """Run a program by spark-submit, to its end; return what it printed. Executors have Python from the archive."""
        sizes = {"spark.executor.memory": "600m", "spark.driver.memory": "600m", "spark.ui.enabled": "false"}
        sizes["spark.python.authenticate.socketTimeout"] = "120s"  # on a busy machine
        conf = {**sizes, "spark.local.dir": str(self.folder / "local"), **(conf or {})}
        command = [f"{os.environ['SPARK_HOME']}/bin/spark-submit", "--master", self.master]
        command += [part for name, value in conf.items() for part in ("--conf", f"{name}={value}")]
        python = sys.executable
        if archive is not None:
            command += ["--archives", f"{archive}#environment"]
            python = "./environment/bin/python"
        environment = {
            **self._environment(HOSTS[0]),
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "PYSPARK_PYTHON": python,
            "HOME": str(self.folder),
        }
        with open(self.folder / "driver.log", "ab") as log:
            done = subprocess.run(
                [*command, str(script), *arguments], env=environment, cwd=self.folder, stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=log, timeout=JOB_S, check=False,
            )  # fmt: skip
        self._remove_work()
        assert done.returncode == 0, self.log("driver")[-6000:]
        return done.stdout.decode()

    def stop(self) -> None:
        for process in reversed(self._processes):
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self._remove_work()

    def _remove_work(self) -> None:
        """Remove what executors had: the archive, unpacked, a few hundred megabytes each."""
        for path in (*self.folder.glob("work-*/app-*"), self.folder / "local"):
            shutil.rmtree(path, ignore_errors=True)

    def _environment(self, host: str) -> dict[str, str]:
        """Return an environment in which nothing but an archive leads to this checkout."""
        options = {"SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": _JVM, "SPARK_SUBMIT_OPTS": _JVM}
        return {"PATH": os.environ["PATH"], "SPARK_HOME": os.environ["SPARK_HOME"], "SPARK_LOCAL_IP": host, **options}

    def _run(self, name: str, host: str, *words: str) -> None:
        command = [f"{os.environ['SPARK_HOME']}/bin/spark-class", *words]
        with open(self.folder / f"{name}.log", "ab") as log:
            self._processes.append(
                subprocess.Popen(
                    command,
                    env=self._environment(host),
                    cwd=self.folder,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            )


@contextmanager
def own_cluster(folder: Path) -> Iterator[OwnCluster]:
    """Run a cluster; its processes, with the executors of its workers, end with the block."""
    made = OwnCluster(folder)
    try:
        made.start()
        yield made
    finally:
        made.stop()


def printed(output: str, name: str) -> str:
    """Return the rest of the line that begins with a name."""
    found = re.search(rf"(?m)^{name} (.*)$", output)
    assert found is not None, output
    return found[1]
