"""`quire admin` in the process of a test."""

from __future__ import annotations

import contextlib
import functools
import io
import shlex
import sys
from typing import Any

from quire.cli.admin.app import admin_app
from quire.cli.lazy import command_of


@functools.cache
def _command() -> Any:
    """Return the command; making it costs more than a run."""
    return command_of(admin_app())


def admin(words: str, *, typed: str = "") -> tuple[int, str, str]:
    """Run `quire admin` in this process; return exit code, output and errors."""
    out, err, standard_input = io.StringIO(), io.StringIO(), sys.stdin
    sys.stdin = io.StringIO(typed)
    code = 0
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            _command().main(shlex.split(words), prog_name="quire admin")
    except SystemExit as end:
        code = int(end.code or 0)
    finally:
        sys.stdin = standard_input
    return code, out.getvalue(), err.getvalue()
