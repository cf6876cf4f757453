"""Event times of raw rows → microseconds since 1970 UTC."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def micros(column: pa.ChunkedArray, time_format: str | None) -> tuple[np.ndarray, np.ndarray]:
    """Times → (microseconds since 1970 UTC, which are no times)."""
    if time_format:
        parsed = pc.strptime(column.combine_chunks(), format=time_format, unit="us", error_is_null=True)
        broken = np.asarray(parsed.is_null())
        return np.asarray(pc.fill_null(parsed.cast(pa.int64()), 0)), broken
    seconds = column.to_numpy()
    broken = ~(np.abs(seconds) < 2.0**43)  # also NaN; 2^43 s are 278,000 years
    return (np.where(broken, 0, seconds) * 1e6).round().astype(np.int64), broken
