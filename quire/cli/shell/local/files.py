"""Read-only access to a bookie's files.

It blocks, like the commands on local files: no other task runs beside them, and Ctrl-C ends them at once."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import PurePath
from typing import Final

from quire.cli.shell.context import Shell
from quire.cli.shell.errors import ShellError, UsageError
from quire.world.doors import File, KeyValue
from quire.world.real_look import look_into

OPEN_ATTEMPTS: Final = 3


@contextmanager
def opened(shell: Shell, path: str) -> Iterator[File]:
    """Open a file. Raises ShellError if it is missing or unreadable."""
    try:
        file = shell.world.disk.open(path, writable=False)
    except FileNotFoundError:
        raise ShellError(f"there is no file {path}") from None
    except OSError as error:
        raise ShellError(f"{path} cannot be read: {error.strerror}") from error
    try:
        yield file
    finally:
        file.close()


def full_path(path: str) -> str:
    """Return a path as the original prints it: absolute, and without links."""
    return os.path.realpath(path)


def find(shell: Shell, folders: tuple[str, ...], name: str, operand: str = "") -> list[str]:
    """Return the paths of a file in the folders: several ledger folders have entry logs of the same names.

    An operand that is a path into one of the folders means that file alone. With several, the paths are noted on
    standard error. Raises ShellError if none has it."""
    given = full_path(os.path.dirname(operand)) if "/" in operand else ""
    named = [folder for folder in folders if given in (full_path(folder), full_path(os.path.dirname(folder)))]
    looked = named or folders
    found = [f"{folder}/{name}" for folder in dict.fromkeys(looked) if shell.world.disk.exists(f"{folder}/{name}")]
    if not found:
        raise ShellError(f"there is no file {name} in {', '.join(looked)}")
    if len(folders) > 1:
        shell.output.note(f"{name} is in {' and '.join(PurePath(path).parent.as_posix() for path in found)}")
    return found


def file_id(text: str, suffix: str, *, base: int = 10) -> int:
    """Return the id given by an operand: a number (`base`), or the name of a file, whose stem is hexadecimal.

    Raises UsageError."""
    with suppress(ValueError):
        number = int(text, base)
        if number >= 0 and text.isalnum():
            return number
    name = PurePath(text).name
    stem, dot, found = name.partition(".")
    if not dot or f".{found}" != suffix:
        raise UsageError(f"{text} is neither an id nor the name of a {suffix} file")
    try:
        return int(stem, 16)
    except ValueError:
        raise UsageError(f"{name} has no hexadecimal id in its name") from None


@contextmanager
def index(path: str) -> Iterator[KeyValue]:
    """Open a RocksDB read-only in its present state, while a bookie may be running on it. Raises ShellError.

    (A file deleted meanwhile by the bookie has been replaced at the next attempt.)"""
    for attempt in range(OPEN_ATTEMPTS):
        try:
            rows = look_into(path)
            break
        except OSError as error:
            if attempt + 1 == OPEN_ATTEMPTS:
                raise ShellError(f"the index {path} cannot be read: {error.strerror}") from error
    try:
        yield rows
    finally:
        rows.close()
