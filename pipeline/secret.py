"""Secrets: they are in the environment or in a file that it names, never in `altneu.toml`."""

from __future__ import annotations

import os
from pathlib import Path

from .errors import UsageError


def read_secret(name: str) -> str | None:
    """Return the value of this environment variable, or the stripped content of the file that `NAME_FILE` names.

    None: neither is set. Raises `UsageError` where the file cannot be read.

    >>> os.environ["SOME_TOKEN"] = "x"
    >>> read_secret("SOME_TOKEN"), read_secret("NO_TOKEN")
    ('x', None)
    """
    if os.environ.get(name):
        return os.environ[name]
    file = os.environ.get(f"{name}_FILE")
    if not file:
        return None
    try:
        return Path(file).read_text(encoding="utf-8").strip() or None
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise UsageError(
            f"{name}_FILE = {file}: {why}.", f"set {name} itself, or name a file that this user can read"
        ) from None


def has_secret(name: str) -> bool:
    """Tell whether a secret is set. It may still be impossible to read its file."""
    return bool(os.environ.get(name) or os.environ.get(f"{name}_FILE"))
