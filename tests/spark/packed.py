"""An environment of Python as an archive for `spark-submit --archives`, as venv-pack makes it."""

from __future__ import annotations

import re
import tarfile
import venv
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement

CHECKOUT = Path(__file__).parents[2]
PACKAGES = ("quire", "pyspark_quire")
OURS = "quire-broker"


def pack(path: Path, folder: Path) -> None:
    """Write an environment with this checkout and what `quire-broker[spark]` requires, as a tar file with gzip.

    `folder`: a new folder for the environment without packages."""
    venv.create(folder, with_pip=False, symlinks=True)
    [site] = (each.relative_to(folder) for each in folder.glob("lib/python*/site-packages"))
    # Spark unpacks plain tar files by itself, and then refuses the link to the interpreter.
    with tarfile.open(path, "w:gz", compresslevel=1) as tar:
        for each in sorted(folder.iterdir()):
            tar.add(each, each.name)
        for found in _required():
            for file in found.files or ():
                source = Path(str(found.locate_file(file)))
                if ".." not in file.parts and _is_needed(found, source) and source.is_file():
                    tar.add(source, str(site / file))
                    for compiled in (source.parent / "__pycache__").glob(f"{source.stem}.*.pyc"):
                        tar.add(compiled, str(site / Path(file).parent / "__pycache__" / compiled.name))
        for name in PACKAGES:
            for source in (CHECKOUT / name).rglob("*"):
                if source.is_file() and source.suffix != ".pyc":
                    tar.add(source, str(site / source.relative_to(CHECKOUT)))


def _is_needed(of: Distribution, source: Path) -> bool:
    """Return whether a file belongs into the archive: all but the jars of Spark, which the cluster has."""
    if of.metadata["Name"] == "pyspark":
        return "jars" not in source.parts
    return source.suffix not in (".pth", ".pyc")


def _required() -> list[Distribution]:
    """Return the installed distributions that `quire-broker[spark]` needs, with theirs."""
    found: dict[tuple[str, str], Distribution | None] = {}
    waiting = [(OURS, "spark")]
    while waiting:
        name, extra = waiting.pop()
        key = (re.sub(r"[-_.]+", "-", name).lower(), extra)
        if key in found:
            continue
        made = distribution(name)
        found[key] = None if key[0] == OURS else made
        for text in made.requires or ():
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
                waiting += [(requirement.name, each) for each in ("", *requirement.extras)]
    return list({each.metadata["Name"]: each for each in found.values() if each is not None}.values())
