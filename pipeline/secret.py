"""Secrets: they are in the environment, or in a file that it names, never in `altneu.toml`. `mask_secrets` keeps them
out of what is said and written."""

from __future__ import annotations

import os
import re
from pathlib import Path

# Names under which secrets stand, in the environment and among Spark's settings; `…secretKeyRef.NAME` is a reference.
_NAME = re.compile(r"(secret|passw(or)?d|token|credential|(access|secret|account)[._-]?key(\..*)?)$", re.IGNORECASE)
_REFERENCE = re.compile(r"spark\.kubernetes\.(driver|executor)\.secret", re.IGNORECASE)
_ADDRESS = re.compile(
    r"(://[^:@/\s]*):[^@\s]*@"  # user:password before a host
    r"|((?:s3|gs|gcs)\w*://)[^:@/\s]*@"  # keys before a bucket
    r"|(;token=)[^;\s]*"  # of a Spark Connect server
)
_NAMED = re.compile(r"((?:password|secret|token|access[._-]?key)[^=\n]*=\s*)\S[^\n]*", re.IGNORECASE)
_LEAST = 6  # a shorter value is not looked for in texts: it may be part of any word


def read_secret(name: str) -> str | None:
    """The variable of this name, or what is in the file that `NAME_FILE` names, without the end of its line; None:
    neither is set. Raises `UsageError` where the file cannot be read.

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
        from .errors import UsageError

        why = getattr(error, "strerror", None) or "it is no text"
        raise UsageError(f"{name}_FILE = {file}: {why}.", f"{name} itself, or a file that this user can read") from None


def has_secret(name: str) -> bool:
    """Is there such a secret? It may be one that cannot be read."""
    return bool(os.environ.get(name) or os.environ.get(f"{name}_FILE"))


def is_secret(name: str) -> bool:
    """Is this the name of a secret, not of a reference to one?

    >>> [is_secret(each) for each in ("spark.hadoop.fs.s3a.secret.key", "spark.authenticate.secret.file", "PGPASSWORD")]
    [True, False, True]
    >>> is_secret("spark.kubernetes.driver.secretKeyRef.PGPASSWORD")
    False
    """
    return _NAME.search(name) is not None and _REFERENCE.match(name) is None


def mask_secrets(text: str) -> str:
    """The text without passwords in addresses, and without the secrets of this environment.

    >>> mask_secrets("postgresql://me:hidden@host/db"), mask_secrets("sc://host:1/;token=hidden;use_ssl=true")
    ('postgresql://me:***@host/db', 'sc://host:1/;token=***;use_ssl=true')
    """
    for name, value in os.environ.items():
        if len(value) >= _LEAST and value in text and is_secret(name):
            text = text.replace(value, "***")
    return _ADDRESS.sub(_mask_match, text)


def _mask_match(found: re.Match[str]) -> str:
    login, keys, named = found.groups()
    return f"{login}:***@" if login is not None else f"{keys}***@" if keys is not None else f"{named}***"


def mask_secret_assignments(text: str) -> str:
    """And without what follows a name of a secret and `=`, to the end of the line.

    >>> mask_secret_assignments("-Dhttps.proxyPassword=hidden")
    '-Dhttps.proxyPassword=***'
    """
    return _NAMED.sub(r"\1***", mask_secrets(text))
