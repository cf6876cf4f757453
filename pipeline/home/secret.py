"""Secrets: what is never in `altneu.toml`, but in the environment, or in a file that the environment names."""

from __future__ import annotations

import os
from pathlib import Path

from ..errors import UsageError


def secret(name: str) -> str | None:
    """The variable of this name, or what is in the file that `NAME_FILE` names, without the end of its line; None:
    neither is set. Raises `UsageError` where the file cannot be read.

    >>> os.environ["SOME_TOKEN"] = "x"
    >>> secret("SOME_TOKEN"), secret("NO_TOKEN")
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
        why = getattr(error, "strerror", None) or "it is no text"
        raise UsageError(f"{name}_FILE = {file}: {why}.", f"{name} itself, or a file that this user can read") from None
