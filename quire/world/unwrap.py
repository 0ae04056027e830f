"""The one place where groups of exceptions are taken apart: for exit codes, log lines and error texts.

Trio wraps what leaves a task in a group per nursery, so a mistake in a connection arrives as groups nested four to
seven deep.
"""

from __future__ import annotations

from collections.abc import Iterator


def leaves(error: BaseException) -> Iterator[BaseException]:
    """Yield the errors in a group and in the groups in it, in order; the error itself if it is no group."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from leaves(inner)
    else:
        yield error


def first_leaf(error: BaseException) -> BaseException:
    """Return the first error in a group, or the error itself."""
    return next(leaves(error))


def reason_of(error: BaseException) -> str:
    """Return the texts of all errors in a group in one line, each once; an error without a text is named by its
    type."""
    return "; ".join(dict.fromkeys([str(leaf) or repr(leaf) for leaf in leaves(error)]))
