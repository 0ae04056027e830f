"""One failure that several callers are told of."""

from __future__ import annotations

from typing import TypeVar

E = TypeVar("E", bound=BaseException)


def again(error: E) -> E:
    """Return an error of the class and the content of `error`, to be raised from it.

    What ended a task is raised in each caller that waits for it. Raising the same object again would append the
    traceback of every caller to it, and set its context to whatever that caller was handling.

    >>> try:
    ...     raise again(cause := OSError(28, "no space")) from cause
    ... except OSError as error:
    ...     error.errno, error.__cause__ is cause
    (28, True)
    """
    copied: E = type(error).__new__(type(error), *error.args)
    copied.args = error.args
    copied.__dict__.update(error.__dict__)
    return copied
