"""The frames of few rows, which are always in pandas: sums of the tables, by k and in total, and the volumes by epoch.

A function here makes a frame from those of a `FrameSource`; it returns None if a frame that it needs is not given.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

from .gx_runner import plain_row
from .volumes import WINDOW, bad_share_bound, usual_growth, usual_rows

if TYPE_CHECKING:
    import pandas as pd


class FrameSource(Protocol):
    """The frames of one call by name, as `frame_builder.FrameBuilder` builds them."""

    context: Mapping[str, Any]
    frames: dict[str, Any]

    def get_frame(self, name: str) -> Any: ...

    def run_epochs(self) -> list[int] | None: ...


def truss_frame(shop: FrameSource) -> pd.DataFrame | None:
    """Return, for each k that occurs, the number of edges with that trussness or a greater one."""
    import pandas as pd
    from pyspark.sql import functions as F

    edge_set = shop.get_frame("edge_set")
    if edge_set is None:
        return None
    if isinstance(edge_set, pd.DataFrame):
        groups = edge_set.groupby("greatest_k", dropna=False)
        counted = groups.agg(edges=("k", "count"), copies=("copies", "sum")).reset_index(names="k")
        rows = [plain_row({"k": row.k, "edges": row.edges, "copies": row.copies}) for row in counted.itertuples()]
    else:
        groups = edge_set.groupBy(F.col("greatest_k").alias("k"))
        sums = groups.agg(F.count("k").alias("edges"), F.sum("copies").alias("copies"))
        rows = [row.asDict() for row in sums.collect()]
    rows.sort(key=lambda row: (row["k"] is not None, row["k"]), reverse=True)
    out, so_far = [], 0
    for row in rows:
        so_far += row["edges"]
        k = row["k"]
        bounds = (None, None) if k is None else (so_far, k * (k - 1) // 2 if k > 0 else 0)
        out.append((k, *bounds, row["copies"] or 0))
    columns = ["k", "edges_with_k_or_more", "at_least", "copies"]
    return pd.DataFrame(out, columns=columns).astype("Int64")


def totals_frame(shop: FrameSource) -> pd.DataFrame | None:
    """Return one row: the totals, the numbers counted from the tables, and which totals are impossible."""
    import pandas as pd

    row: dict[str, Any] = {"epoch": shop.context["epoch"]}
    vertices, trusses = shop.get_frame("vertices"), shop.get_frame("trusses")
    if vertices is not None:
        row |= _vertex_sums(vertices)
    if trusses is not None:
        row["edges_counted"] = int(trusses["copies"].sum())
        row["twice_the_edges"] = 2 * row["edges_counted"]
        row["greatest_k"] = int(trusses["k"].max()) if trusses["k"].notna().any() else 0
    if "totals" in shop.frames:
        (totals,) = shop.frames["totals"]
        row |= totals | {"three_times_the_triangles": 3 * totals["triangles"]} | _impossible_totals(totals)
        row |= _growth_surprises(shop, totals)
    return pd.DataFrame([row])


def _vertex_sums(vertices: Any) -> dict[str, int]:
    """Return the sums over the vertices, of either engine."""
    import pandas as pd
    from pyspark.sql import functions as F

    names = ("vertices_counted", "sum_of_degrees", "wedges_counted", "sum_of_counts")
    if isinstance(vertices, pd.DataFrame):
        d = vertices["degree"]
        sums = (d.count(), d.sum(), (d * (d - 1) // 2).sum(), vertices["triangles"].sum())
    else:
        wedges = F.expr("shiftright(degree * (degree - 1), 1)")
        added = (F.coalesce(F.sum(column), F.lit(0)) for column in ("degree", wedges, "triangles"))
        (sums,) = vertices.agg(F.count("degree"), *added).collect()
    return {name: int(value) for name, value in zip(names, sums, strict=True)}


def _impossible_totals(totals: dict[str, int]) -> dict[str, str | None]:
    """Return, for each measure, a message if no graph can have these totals, otherwise None."""
    n, m, t, k = (totals[name] for name in ("vertices", "edges", "triangles", "max_trussness"))
    most = math.isqrt(2 * max(m, 0) ** 3) // 3
    fewest = 0 if k < 3 else k * (k - 1) * (k - 2) // 6
    fits = n <= 2 * m and 2 * m <= n * (n - 1) if m > 0 else n == 0 and m == 0
    proper = k == 0 if m <= 0 else (k >= 3) == (t > 0) and k >= 2 and t >= fewest
    return {
        "impossible_triangles": None if 0 <= t <= most else f"must be between 0 and {most}",
        "impossible_vertices": None if fits else f"no graph with {n} vertices has {m} edges",
        "impossible_trussness": None if proper else f"no graph of trussness {k} has {t} triangles",
    }


def _growth_surprises(shop: FrameSource, totals: dict[str, int]) -> dict[str, Any]:
    """Return how surprising the steps of the totals from the epoch before are; None if that is not known.

    For people there are also the totals before, and those that are usual after them.
    """
    epoch = totals["epoch"]
    past = [entry for entry in _totals_history(shop) if entry["epoch"] < epoch]
    between = [e for e in shop.run_epochs() or [] if past and past[-1]["epoch"] < e < epoch]
    out: dict[str, Any] = {}
    for measure in ("edges", "triangles"):
        band = (
            None if between else usual_growth([(p["epoch"], p[measure]) for p in past], epoch, **_learned_bounds(shop))
        )
        step = math.log1p(max(totals[measure], 0)) - math.log1p(max(past[-1][measure], 0)) if past else 0.0
        out[f"{measure}_surprise"] = band.surprise_of(step) if band else None
        out[f"{measure}_before"] = before = max(past[-1][measure], 0) if past else 0
        out[f"usual_{measure}"] = band.describe(band.count_bounds(before)) if band else ""
    return out


def _learned_bounds(shop: FrameSource) -> dict[str, Any]:
    """Return how the bounds are learned: seasons and width (`volumes.usual_band`)."""
    return {name: shop.context[name] for name in ("seasons", "width") if name in shop.context}


def _totals_history(shop: FrameSource) -> list[dict[str, Any]]:
    return sorted(shop.context.get("history", []), key=lambda entry: entry["epoch"])


def volumes_frame(shop: FrameSource) -> pd.DataFrame | None:
    """Return, for each epoch of the run, the landed and the stored rows, and how many are usual."""
    import pandas as pd
    from pyspark.sql import functions as F

    if "volumes" not in shop.frames:
        return None
    rows = sorted((dict(row) for row in shop.frames["volumes"]), key=lambda row: row["epoch"])
    stored: dict[int, int] = {}
    net = shop.get_frame("upserts_net")
    if isinstance(net, pd.DataFrame):
        counted = net.groupby("epoch", as_index=False)["copies"].sum()
        stored = dict(zip(counted["epoch"].tolist(), counted["copies"].tolist(), strict=True))
    elif net is not None:
        counted = net.groupBy("epoch").agg(F.sum("copies").alias("copies"))
        stored = {row["epoch"]: row["copies"] for row in counted.collect()}
    # in a backfill an epoch of the run is part of the history of the later ones
    known = sorted([*_totals_history(shop), *rows], key=lambda entry: entry["epoch"])
    epochs = [entry["epoch"] for entry in known]
    for row in rows:
        past = known[: bisect_left(epochs, row["epoch"])][-WINDOW:]
        band = usual_rows([(p["epoch"], p["rows"]) for p in past], row["epoch"], **_learned_bounds(shop))
        row |= {
            "stored": stored.get(row["epoch"]),
            "bad_share": _bad_share(row),
            "bad_share_bound": bad_share_bound([_bad_share(p) for p in past]),
            "usual_rows": band.describe(band.row_bounds) if band else "",
            "early": _how_early(row.get("landed_at"), row.get("over_at")),
            "rows_surprise": band.surprise_of(math.log1p(row["rows"])) if band else None,
        }
    kinds = dict.fromkeys(("epoch", "rows", "bad_rows", "stored"), "Int64") | {"rows_surprise": "Float64"}
    columns = ["epoch", "rows", "bad_rows", "stored", "bad_share", "bad_share_bound", "usual_rows", "rows_surprise"]
    return pd.DataFrame(rows, columns=[*columns, "landed_at", "over_at", "early"]).astype(kinds)


def motifs_frame(shop: FrameSource) -> pd.DataFrame | None:
    """Return, for each motif, its total and the sum of the vertices' counts."""
    import pandas as pd

    return pd.DataFrame(shop.frames["motifs"]) if shop.frames.get("motifs") else None


def _how_early(landed: datetime | None, over: datetime | None) -> str | None:
    """Return how long before the end of its epoch a batch was written, as text; None if it was written after it."""
    return f"{over - landed} before its end" if landed and over and landed < over else None


def _bad_share(row: Mapping[str, Any]) -> float:
    return float(row["bad_rows"] / max(row["rows"] + row["bad_rows"], 1))
