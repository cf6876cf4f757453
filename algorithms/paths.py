"""Paths as Spark's readers take them, which look for all files that match: a path is the pattern of itself alone."""

from __future__ import annotations

import re


def spark_pattern(path: str) -> str:
    r"""Write the pattern that one path alone matches.

    >>> print(spark_pattern("/data/a?b/{x}.json"))
    /data/a\?b/\{x\}.json
    """
    return re.sub(r"[]\[{}?*\\]", lambda found: f"\\{found[0]}", path)
