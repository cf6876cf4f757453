"""Commands that measure; what they print stands in RESULTS.md."""

import statistics

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from altneu.pipeline.home.home import Home


def put_rows(home: Home, epoch: int, src: np.ndarray, dst: np.ndarray, op: list[str]) -> None:
    """Land an epoch as one Parquet file."""
    path = home.landing / f"epoch={epoch}"
    path.mkdir(parents=True)
    pq.write_table(pa.table({"src": src, "dst": dst, "op": op}), path / "rows.parquet")
    (path / "_SUCCESS").touch()


def put_changes(home: Home, epoch: int, rng: np.random.Generator, a: np.ndarray, b: np.ndarray, size: int) -> None:
    """Land an epoch of so many mixed changes: half deletions of edges, half upserts between the ends of some."""
    half = size // 2
    gone = rng.choice(a.size, half, replace=False)
    src = np.append(a[gone], rng.choice(a, half))
    dst = np.append(b[gone], rng.choice(b, half))
    put_rows(home, epoch, src, dst, ["delete"] * half + ["upsert"] * half)


def spread(values: list[float], digits: int = 1) -> str:
    """The median with the least and the greatest, for a table."""
    middle, least, most = (f"{value:.{digits}f}" for value in (statistics.median(values), min(values), max(values)))
    return f"{middle} ({least} – {most})"
