"""The masking of secrets: what is a secret, and texts that are shown or written without any."""

from __future__ import annotations

import os
import re

# Names of secrets, in the environment and in Spark's settings. `…secretKeyRef.NAME` only refers to a secret.
_NAME = re.compile(r"(secret|passw(or)?d|token|credential|(access|secret|account)[._-]?key(\..*)?)$", re.IGNORECASE)
_REFERENCE = re.compile(r"spark\.kubernetes\.(driver|executor)\.secret", re.IGNORECASE)
_ADDRESS = re.compile(
    r"(://[^:@/\s]*):[^@\s]*@"  # user:password before a host
    r"|((?:s3|gs|gcs)\w*://)[^:@/\s]*@"  # keys before a bucket
    r"|(;token=)[^;\s]*"  # the token of a Spark Connect server
)
_NAMED_SECRET = re.compile(r"((?:password|secret|token|access[._-]?key)[^=\n]*=\s*)\S[^\n]*", re.IGNORECASE)
_MIN_CHARACTERS = 6  # characters; a shorter value is not masked in texts, because it may be part of any word


def is_secret(name: str) -> bool:
    """Tell whether this is the name of a secret, not of a reference to one.

    >>> [is_secret(each) for each in ("spark.hadoop.fs.s3a.secret.key", "spark.authenticate.secret.file", "PGPASSWORD")]
    [True, False, True]
    >>> is_secret("spark.kubernetes.driver.secretKeyRef.PGPASSWORD")
    False
    """
    return _NAME.search(name) is not None and _REFERENCE.match(name) is None


def mask_secrets(text: str) -> str:
    """Return the text without passwords in addresses, and without the secrets of this environment.

    >>> mask_secrets("postgresql://me:hidden@host/db"), mask_secrets("sc://host:1/;token=hidden;use_ssl=true")
    ('postgresql://me:***@host/db', 'sc://host:1/;token=***;use_ssl=true')
    """
    for name, value in os.environ.items():
        if len(value) >= _MIN_CHARACTERS and value in text and is_secret(name):
            text = text.replace(value, "***")
    return _ADDRESS.sub(_mask_match, text)


def _mask_match(match: re.Match[str]) -> str:
    login, keys, named = match.groups()
    return f"{login}:***@" if login is not None else f"{keys}***@" if keys is not None else f"{named}***"


def mask_secret_assignments(text: str) -> str:
    """Mask secrets, and everything that follows the name of a secret and `=`, up to the end of the line.

    >>> mask_secret_assignments("-Dhttps.proxyPassword=hidden")
    '-Dhttps.proxyPassword=***'
    """
    return _NAMED_SECRET.sub(r"\1***", mask_secrets(text))
