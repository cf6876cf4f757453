"""The folder of what set-up puts into the Python environment (`local.setup`).

It has `jars/`; `java/`, the Java that set-up chose; and `spark.jsa`, a class-data archive that halves the start of the
JVM.
"""

from __future__ import annotations

import sys
from pathlib import Path

ASSETS = Path(sys.prefix) / "altneu"
ARCHIVE = ASSETS / "spark.jsa"
