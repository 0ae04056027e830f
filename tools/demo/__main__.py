"""Send every line of every text file under DIR through Quire and back, while the server is killed twice.

At the end the topic is archived with Spark, if that can run here, and the tree is rebuilt from the archive once more.
Then Spark copies the topic, each message once, while its driver is killed, and the copy is compared with the archive.
The exit code is 0 if every file came back byte for byte and its lines arrived in order, 1 if not, 2 if it cannot run.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from quire.service import log
from quire.service.programs.command_line import run_command
from tools.demo.archive import Archived, Archiving, make_archive
from tools.demo.cluster import ClusterServer
from tools.demo.copying import Copied, Copying, SparkCopy, copy_differences
from tools.demo.files import Rebuilder, Tree, differences, scan, walk, write
from tools.demo.messaging import Messaging, PulsarMessaging
from tools.demo.report import PlainProgress, TerminalProgress, table
from tools.demo.run import MESSAGES_MIN, Outcome, Progress, consume, publish
from tools.demo.server import DemoError, Server

SHOWN_MAX = 20
"""Maximum number of differences printed."""


def tracked(root: bytes) -> list[bytes]:
    """Return the files tracked by git under `root`; every file without git."""
    try:
        listed = subprocess.run(
            ["git", "ls-files", "-z"], cwd=root, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        return walk(root)
    return sorted(path for path in listed.split(b"\0") if path)


def demo(
    tree: Tree,
    server: Server | ClusterServer,
    messaging: Messaging,
    folder: Path,
    console: Console,
    progress: Progress,
    archiving: Archiving | None = None,
    copying: Copying | None = None,
) -> int:
    """Run the demo and show the table; return the number of errors."""
    rebuilder = Rebuilder.of(tree)
    if rebuilder.expected < MESSAGES_MIN:
        raise DemoError(f"{rebuilder.expected} lines are too few for kills in mid-flight: choose a larger tree")
    outcome = Outcome(messages=rebuilder.expected)
    server.start()
    progress.note(f"the server is ready at {server.url} after {server.start_s[0]:.2f} s")
    for stage in (archiving, copying):
        if stage is not None:
            stage.hold()
    publish(tree, messaging, server, progress, outcome)
    consume(rebuilder, messaging, server, progress, outcome)
    archived = archiving.run(progress) if archiving is not None else None
    copied = copying.run(rebuilder.expected, progress) if copying is not None else None
    lines = list(copying.lines()) if copying is not None else []
    server.stop()
    told = compare(tree, rebuilder, folder / "rebuilt")
    problems = [*told, *strange(rebuilder)]
    figures: tuple[Archived, int] | None = None
    copy_figures: tuple[Copied, int] | None = None
    if archiving is not None and archived is not None:
        again = Rebuilder.of(tree)
        for line in archiving.lines():
            again.deliver(line.key, line.number)
            again.acknowledge(*line)
        differing = compare(tree, again, folder / "rebuilt-from-archive")
        problems += [f"archive: {each}" for each in (*differing, *strange(again))]
        figures = (archived, len(differing))
        if copied is not None:
            others = copy_differences(archiving.lines(), lines)
            problems += [f"copy: {each}" for each in others]
            copy_figures = (copied, len(others))
    problems += [f"server log: {line}" for line in server.errors()]
    console.print(table(tree, rebuilder, outcome, len(told), figures, copy_figures))
    for problem in problems[:SHOWN_MAX]:
        console.print(problem, highlight=False, markup=False)
    if len(problems) > SHOWN_MAX:
        console.print(f"... and {len(problems) - SHOWN_MAX} more", highlight=False)
    return len(problems)


def compare(tree: Tree, rebuilder: Rebuilder, folder: Path) -> list[str]:
    """Write the returned files into `folder`, a new one, and print the differences."""
    root = os.fsencode(folder)
    os.makedirs(root)
    write(root, rebuilder)
    return differences(tree, root, walk(root))


def strange(rebuilder: Rebuilder) -> list[str]:
    """Return errors that a comparison of the files does not show."""
    return [*rebuilder.out_of_order, *(f"{key}: delivered, but never published" for key in rebuilder.strange)]


def demonstrate(
    folder: Annotated[
        str | None,
        typer.Argument(
            metavar="[DIR]",
            help="Tree to publish (default: the files of this checkout that git tracks).",
            show_default=False,
        ),
    ] = None,
    cluster: Annotated[
        bool,
        typer.Option(
            "--cluster",
            help="Use a cluster of processes, with ZooKeeper (needs Java 17); the kills end a broker and a bookie.",
        ),
    ] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the server's data, its log and the rebuilt tree.")] = False,
    no_spark: Annotated[bool, typer.Option("--no-spark", help="Skip archive and copy, the stages with Spark.")] = False,
) -> int:
    return run(folder, cluster=cluster, keep=keep, spark=not no_spark)


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return the exit code, also of help and of what is refused."""
    return run_command(demonstrate, argv, name="scripts/demo", text=__doc__)


def run(given: str | None, *, cluster: bool, keep: bool, spark: bool) -> int:
    """Run the demo with the tree at `given`; return the exit code."""
    log.configure("error", sys.stderr)
    console = Console()
    progress: Progress = TerminalProgress(console) if console.is_terminal else PlainProgress(console)
    root = os.fsencode(Path(given).absolute() if given else Path(__file__).resolve().parents[2])
    if not os.path.isdir(root):
        print(f"scripts/demo: {given} is not a directory", file=sys.stderr)
        return 2
    folder = Path(tempfile.mkdtemp(prefix="quire-demo-"))
    server = ClusterServer(folder) if cluster else Server(folder)
    problems = 1
    try:
        tree = scan(root, walk(root) if given else tracked(root))
        messaging = PulsarMessaging(server.url, folder / "client.log")
        archiving = make_archive(server, folder, progress, wanted=spark)
        copying = None if archiving is None else SparkCopy(server, folder)
        problems = demo(tree, server, messaging, folder, console, progress, archiving, copying)
    except DemoError as error:
        progress.end()
        print(f"scripts/demo: {error}", file=sys.stderr)
    finally:
        server.abandon()
        if problems or keep:
            print(f"kept: {folder}", file=sys.stderr)
        else:
            shutil.rmtree(folder)
    console.print("everything came back" if not problems else "NOT everything came back", highlight=False)
    return 1 if problems else 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # a client that cannot be closed must not keep the demo from ending
