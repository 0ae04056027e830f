"""Name and version of the installed distribution."""

from __future__ import annotations

DISTRIBUTION = "quire-broker"
"""The name that pip installs: `quire` is another project's on PyPI. The import name and the command are `quire`."""


def installed_version() -> str:
    """Return the version of the installed distribution.

    Raises:
        importlib.metadata.PackageNotFoundError: this code runs from a folder that is not installed.
    """
    from importlib.metadata import version

    return version(DISTRIBUTION)


def install_command(extra: str) -> str:
    """Return the shell command that installs Quire with one of its extras.

    >>> install_command("spark")
    "pip install 'quire-broker[spark]'"
    """
    return f"pip install '{DISTRIBUTION}[{extra}]'"
