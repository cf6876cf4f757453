"""The process that Spark's Python workers are forked from: what they all import is imported here, once.

`spark.python.python_worker_daemon.module` names it where the executors are sure to have this package. By itself each
worker would import pandas, Arrow and Numba again, a second of processor time, and look through all their objects for
garbage after each task, some 60 ms: `gc.freeze` exempts what is there before the fork.
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
