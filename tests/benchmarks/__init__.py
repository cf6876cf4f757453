"""Commands that measure; what they print stands in RESULTS.md."""

import statistics

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.config import Home


def put_rows(home: Home, epoch: int, src: np.ndarray, dst: np.ndarray, op: list[str]) -> None:
    """Land an epoch as one Parquet file."""
    path = home.landing / f"epoch={epoch}"
    path.mkdir(parents=True)
    pq.write_table(pa.table({"src": src, "dst": dst, "op": op}), path / "rows.parquet")


def spread(values: list[float], digits: int = 1) -> str:
    """The median with the least and the greatest, for a table."""
    middle, least, most = (f"{value:.{digits}f}" for value in (statistics.median(values), min(values), max(values)))
    return f"{middle} ({least} – {most})"
