"""Patterns of paths for Spark's readers, which look for all files that match: one that only one path matches."""

from __future__ import annotations

import re


def spark_pattern(path: str) -> str:
    r"""Return the pattern that one path alone matches.

    >>> print(spark_pattern("/data/a?b/{x}.json"))
    /data/a\?b/\{x\}.json
    """
    return re.sub(r"[]\[{}?*\\]", lambda match: f"\\{match[0]}", path)
