"""The process from which Spark's Python workers are forked: it imports once what all of them import.

`spark.python.daemon.module` names this module where the executors are sure to have this package. Without
it each worker would import pandas, Arrow and Numba again, a second of processor time, and search all their objects for
garbage after each task, some 60 ms: `gc.freeze` exempts the objects that exist before the fork.
"""

from __future__ import annotations

import gc

import numba as numba
import pandas as pandas
import pyarrow as pyarrow
from pyspark import daemon

if __name__ == "__main__":
    gc.collect()
    gc.freeze()
    daemon.manager()
