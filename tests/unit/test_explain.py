"""The last row of a key, as `altneu explain` orders rows, is the one that DuckDB's own order puts last."""

from __future__ import annotations

import math
import random

import duckdb
import pyarrow as pa

from altneu.pipeline.reading.explain import _rank_row
from tests import seeds

WEIGHTS = [math.nan, -math.nan, None, 0.0, -0.0, 1.5, -1.5, math.inf, -math.inf]
ENDS = {"src": 1, "dst": 2}  # those of a key are the same
LAST = """
    SELECT key, epoch, seq, op, w, t FROM rows QUALIFY row_number() OVER (
        PARTITION BY key ORDER BY epoch DESC, seq DESC, op = 'upsert' DESC, w DESC NULLS LAST, t DESC NULLS LAST
    ) = 1 ORDER BY key
"""


def test_the_last_row_of_a_key_is_that_of_the_law() -> None:
    seed = seeds.one()
    rng = random.Random(seed)
    rows = [
        {
            **{"key": rng.randrange(200), "epoch": rng.randrange(2), "seq": rng.randrange(2)},
            **{"op": rng.choice(["upsert", "delete"]), "w": rng.choice(WEIGHTS), "t": rng.choice(["a", "b", "", None])},
            **{"file": "rows.csv", "line": line},
        }
        for line in range(2000)
    ]
    table = pa.Table.from_pylist(rows)
    expected = duckdb.connect().register("rows", table).sql(LAST).fetchall()
    last = {row["key"]: row for row in sorted(rows, key=lambda row: _rank_row(row | ENDS, ["w", "t"]))}
    found = [tuple(last[key][name] for name in ("key", "epoch", "seq", "op", "w", "t")) for key in sorted(last)]
    assert [tuple(map(_comparable, row)) for row in found] == [tuple(map(_comparable, row)) for row in expected], seed


def _comparable(value: object) -> object:
    return "NaN" if isinstance(value, float) and math.isnan(value) else value
