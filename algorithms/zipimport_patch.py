"""A patch by which the zips on a Python worker's path are not read again for each task.

As each task begins, Spark invalidates Python's caches of the files to import from (`importlib.invalidate_caches`), and
it has its own library on the path as zips and jars. Python before 3.12 then reads the directory of each of them again
at once (CPython issue 103200), some 0.1 s for every task. With this patch it reads only those that have changed.
Importing this module applies it.
"""

from __future__ import annotations

import os
import sys
import zipimport

_read = zipimport.zipimporter.invalidate_caches
_seen: dict[str, tuple[int, int]] = {}


def _invalidate(self: zipimport.zipimporter) -> None:
    try:
        stat = os.stat(self.archive)
    except OSError:
        return _read(self)
    now = stat.st_mtime_ns, stat.st_size
    if _seen.get(self.archive) != now:
        _read(self)
        _seen[self.archive] = now


if sys.version_info < (3, 12):
    zipimport.zipimporter.invalidate_caches = _invalidate  # type: ignore[method-assign]
