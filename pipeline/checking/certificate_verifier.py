"""Verify a certificate of altneu: that every trussness and every count in its folder is right, at every epoch.

    pip install duckdb
    python verify.py [FOLDER] [--landing DIR]

This file needs Python 3.11 and DuckDB, and nothing of altneu. It exits with 0 where everything is right, else with 1,
and names what is wrong. `--landing DIR` also compares the landed files in DIR with the digests of the certificate.

What proves a trussness. Put the edges of an epoch in order by (trussness, place, a, b). An edge of trussness k is in
the k-truss if at least k - 2 of its triangles have no edge of a smaller trussness ("not too high"): all such edges keep
each other in. It is in no denser truss if it is the first edge of at most k - 2 triangles ("not too low"): remove the
edges in that order, and none ever has more than k - 2 triangles left when it is its turn. Both are counts of triangles.

Each triangle is found once, from its corner of the smallest degree, and is counted anew where one of its edges comes,
goes or moves: the time is that of the triangles (found in at most edges to the power of 1.5 steps) and their changes.
"""

import argparse
import hashlib
import json
import os
import sys
import tempfile
from pathlib import Path

import duckdb

MACROS = """
CREATE MACRO word(x) AS (x & 18446744073709551615::UHUGEINT)::UBIGINT;
CREATE MACRO unsigned(x) AS word((x::HUGEINT + 18446744073709551616::HUGEINT)::UHUGEINT);
CREATE MACRO times(x, y) AS word(x::UHUGEINT * y::UHUGEINT);
CREATE MACRO plus(x, y) AS word(x::UHUGEINT + y::UHUGEINT);
CREATE MACRO mixed(x) AS times(xor(x, x >> 29), 1609587929392839161);
CREATE MACRO hashed(x, seed) AS (
  SELECT xor(mixed(l), mixed(l) >> 32) FROM (SELECT times(xor(h, h >> 33), 14029467366897019727) AS l FROM (
    SELECT plus(times(plus(times(g, 134217728), g >> 37), 11400714785074694791), 9650029242287828579) AS h FROM (
      SELECT xor(plus(plus(seed, 2870177450012600261), 8),
        times(plus(times(y, 2147483648), y >> 33), 11400714785074694791)) AS g
      FROM (SELECT times(unsigned(x), 14029467366897019727) AS y)))));
CREATE MACRO precedes(k, p, e, l, q, f) AS k < l OR (k = l AND (p < q OR (p = q AND e < f)));
"""
TABLES = """
CREATE TABLE pair AS
  SELECT row_number() OVER (ORDER BY a, b) AS e, a, b FROM (SELECT DISTINCT a, b FROM edge);
CREATE TABLE state AS  -- of edge e from epoch t on; k = 0: it does not exist
  SELECT e, t, max(k) AS k, arg_max(place, k) AS place FROM (
    SELECT e, epoch AS t, trussness AS k, place FROM edge JOIN pair USING (a, b)
    UNION ALL SELECT e, until, 0, 0 FROM edge JOIN pair USING (a, b) WHERE until <= $last) GROUP BY e, t;
CREATE TABLE moved AS
  SELECT e, a, b, t, k, coalesce(lag(k) OVER (PARTITION BY e ORDER BY t), 0) AS before FROM state JOIN pair USING (e);
CREATE TABLE arc AS  -- from the end of smaller degree
  WITH turn AS (SELECT v, row_number() OVER (ORDER BY count(*), v) AS r FROM (
    SELECT unnest([a, b]) AS v FROM pair) GROUP BY v)
  SELECT e, least(x.r, y.r) AS u, greatest(x.r, y.r) AS w FROM pair JOIN turn x ON x.v = a JOIN turn y ON y.v = b;
CREATE TABLE triangle AS
  SELECT row_number() OVER () AS tri, [x.e, y.e, z.e] AS edges
  FROM arc x JOIN arc y ON y.u = x.u AND x.w < y.w JOIN arc z ON z.u = x.w AND z.w = y.w;
CREATE TABLE piece AS  -- a triangle from epoch t until `ends`, with its edges as they are then
  WITH corner AS (SELECT tri, unnest(edges) AS e, generate_subscripts(edges, 1) AS slot FROM triangle),
  step AS (SELECT tri, t,
      max(k) FILTER (slot = 1) AS k1, max(place) FILTER (slot = 1) AS p1,
      max(k) FILTER (slot = 2) AS k2, max(place) FILTER (slot = 2) AS p2,
      max(k) FILTER (slot = 3) AS k3, max(place) FILTER (slot = 3) AS p3
    FROM corner JOIN state USING (e) GROUP BY tri, t),
  known AS (SELECT tri, t, lead(t) OVER line AS ends,
      last_value(k1 IGNORE NULLS) OVER line AS k1, last_value(p1 IGNORE NULLS) OVER line AS p1,
      last_value(k2 IGNORE NULLS) OVER line AS k2, last_value(p2 IGNORE NULLS) OVER line AS p2,
      last_value(k3 IGNORE NULLS) OVER line AS k3, last_value(p3 IGNORE NULLS) OVER line AS p3
    FROM step WINDOW line AS (PARTITION BY tri ORDER BY t))
  SELECT known.*, edges[1] AS e1, edges[2] AS e2, edges[3] AS e3
  FROM known JOIN triangle USING (tri) WHERE k1 > 0 AND k2 > 0 AND k3 > 0;
CREATE TABLE share AS  -- the triangles of an edge: those that it is first in, and those that back its trussness
  WITH part AS (
    SELECT t, ends, unnest([e1, e2, e3]) AS e,
      unnest([k1 <= k2 AND k1 <= k3, k2 <= k1 AND k2 <= k3, k3 <= k1 AND k3 <= k2]) AS backs,
      unnest([precedes(k1, p1, e1, k2, p2, e2) AND precedes(k1, p1, e1, k3, p3, e3),
        precedes(k2, p2, e2, k1, p1, e1) AND precedes(k2, p2, e2, k3, p3, e3),
        precedes(k3, p3, e3, k1, p1, e1) AND precedes(k3, p3, e3, k2, p2, e2)]) AS leads
    FROM piece)
  SELECT e, t, sum(sign * backs::BIGINT) AS backing, sum(sign * leads::BIGINT) AS first FROM (
    SELECT e, t, 1 AS sign, backs, leads FROM part
    UNION ALL SELECT e, ends, -1, backs, leads FROM part WHERE ends IS NOT NULL) GROUP BY e, t;
CREATE TABLE proof AS
  SELECT a, b, t AS epoch, k AS trussness, backing, first FROM (
    SELECT e, t, last_value(k IGNORE NULLS) OVER line AS k, coalesce(sum(backing) OVER line, 0) AS backing,
      coalesce(sum(first) OVER line, 0) AS first
    FROM state FULL JOIN share USING (e, t) WINDOW line AS (PARTITION BY e ORDER BY t)) JOIN pair USING (e)
  WHERE k > 0;
CREATE TABLE life AS  -- when triangles come and go; each vertex of one is on two of its edges
  SELECT tri, t, sum(sign) AS n FROM (
    SELECT tri, t, 1 AS sign FROM piece UNION ALL SELECT tri, ends, -1 FROM piece WHERE ends IS NOT NULL)
  GROUP BY tri, t HAVING sum(sign) <> 0;
CREATE TABLE vertex_change AS
  SELECT v, t, sum(degree) AS degree, sum(twice) // 2 AS triangles FROM (
    SELECT unnest([a, b]) AS v, t, (k > 0)::BIGINT - (before > 0)::BIGINT AS degree, 0 AS twice FROM moved
    UNION ALL SELECT unnest([a, b]), t, 0, n FROM (
      SELECT unnest(edges) AS e, t, n FROM life JOIN triangle USING (tri)) JOIN pair USING (e))
  GROUP BY v, t HAVING sum(degree) <> 0 OR sum(twice) <> 0;
CREATE TABLE total_change AS
  WITH degrees AS (SELECT t, degree, sum(degree) OVER (PARTITION BY v ORDER BY t) AS after FROM vertex_change),
  change AS (
    SELECT 'edges' AS measure, 0 AS k, t, (k > 0)::BIGINT - (before > 0)::BIGINT AS n FROM moved
    UNION ALL SELECT 'triangles', 0, t, n FROM life
    UNION ALL SELECT 'vertices', 0, t, (after > 0)::BIGINT - (after - degree > 0)::BIGINT FROM degrees
    UNION ALL SELECT 'wedges', 0, t, (after * (after - 1) - (after - degree) * (after - degree - 1)) // 2 FROM degrees
    UNION ALL SELECT 'truss', k, t, 1 FROM moved WHERE k > 0
    UNION ALL SELECT 'truss', before, t, -1 FROM moved WHERE before > 0)
  SELECT measure, k, t, sum(n) AS n FROM change GROUP BY measure, k, t HAVING sum(n) <> 0;
CREATE TABLE total_count AS
  SELECT t AS epoch, measure, k, sum(n) OVER (PARTITION BY measure, k ORDER BY t) AS value FROM total_change;
CREATE TABLE fingerprint AS
  WITH change AS (
    SELECT 'edges' AS collection, t, (k > 0)::BIGINT - (before > 0)::BIGINT AS n, [a, b] AS row FROM moved
    UNION ALL SELECT 'trussness', t, 1, [a, b, k] FROM moved WHERE k > 0 AND k <> before
    UNION ALL SELECT 'trussness', t, -1, [a, b, before] FROM moved WHERE before > 0 AND k <> before
    UNION ALL SELECT 'degrees', t, degree, [v] FROM vertex_change
    UNION ALL SELECT 'triangle_counts', t, triangles, [v] FROM vertex_change),
  one AS (SELECT *, hashed(row[1], 42) AS x, hashed(row[1], hashed(1, 42)) AS y FROM change WHERE n <> 0),
  two AS (SELECT * REPLACE (if(len(row) > 1, hashed(row[2], x), x) AS x, if(len(row) > 1, hashed(row[2], y), y) AS y)
    FROM one),
  three AS (SELECT * REPLACE (if(len(row) > 2, hashed(row[3], x), x) AS x, if(len(row) > 2, hashed(row[3], y), y) AS y)
    FROM two)
  SELECT collection, t AS epoch, sum(n::HUGEINT * (x & 4294967295)) AS x0, sum(n::HUGEINT * (x >> 32)) AS x1,
    sum(n::HUGEINT * (y & 4294967295)) AS y0, sum(n::HUGEINT * (y >> 32)) AS y1 FROM three GROUP BY collection, t;
"""
CLAIMED_VERTICES = """
  SELECT v, t, sum(degree) AS degree, sum(triangles) AS triangles FROM (
    SELECT vertex AS v, epoch AS t, degree, triangles FROM vertex
    UNION ALL SELECT vertex, until, -degree, -triangles FROM vertex WHERE until <= $last) GROUP BY v, t
"""
CHECKS = {  # the name of a check → the rows that fail it
    "edges have two ends and a trussness": """SELECT a, b, epoch, trussness FROM edge WHERE NOT coalesce(
      a < b AND trussness >= 2 AND epoch BETWEEN $first AND $last AND epoch < until AND place IS NOT NULL, false)""",
    "edges are listed once": """SELECT a, b, epoch FROM (SELECT a, b, epoch,
      lag(until) OVER (PARTITION BY a, b ORDER BY epoch, until) AS past FROM edge) WHERE past > epoch""",
    "no trussness is too high": "SELECT * FROM proof WHERE backing < trussness - 2",
    "no trussness is too low": "SELECT * FROM proof WHERE first > trussness - 2",
    **{
        f"{name} of vertices": f"""SELECT v AS vertex, t AS epoch, coalesce(c.{name}, 0) AS claimed_change,
      coalesce(r.{name}, 0) AS change FROM ({CLAIMED_VERTICES}) c FULL JOIN vertex_change r USING (v, t)
      WHERE coalesce(c.{name}, 0) <> coalesce(r.{name}, 0)"""
        for name in ("degree", "triangles")
    },
    "totals": """SELECT epoch, measure, k, c.value AS claimed, r.value AS value
      FROM total c FULL JOIN total_count r USING (epoch, measure, k) WHERE c.value IS DISTINCT FROM r.value""",
}


def read_folder(manifest: dict) -> duckdb.DuckDBPyConnection:  # type: ignore[type-arg]
    """Load the tables of the certificate in the current folder, and compute everything anew from its edges."""
    database = duckdb.connect(config={"temp_directory": tempfile.mkdtemp(prefix="verify-")})
    database.execute("SET disabled_optimizers = 'join_order'")  # from the smallest corner, as it is written
    database.execute(MACROS)
    for table, file in (("edge", "edges"), ("vertex", "vertices"), ("total", "totals")):
        database.execute(f"CREATE TABLE {table} AS SELECT * FROM '{file}.parquet'")
    for table in ("edge", "vertex"):
        database.execute(f"UPDATE {table} SET until = 9223372036854775807 WHERE until IS NULL")
    for statement in TABLES.split(";\n")[:-1]:
        database.execute(fill_in(statement, manifest))
    return database


def fill_in(query: str, manifest: dict) -> str:  # type: ignore[type-arg]
    return query.replace("$first", f"({int(manifest['first'])})").replace("$last", f"({int(manifest['last'])})")


def find_faults(database: duckdb.DuckDBPyConnection, query: str) -> list[str]:
    """Describe the first three rows of a query, each with the number of all that it has."""
    result = database.execute(f"SELECT count(*) OVER () AS one_of, * FROM ({query}) LIMIT 3")
    names = [column[0] for column in result.description]
    return [", ".join(f"{name} {value}" for name, value in zip(names, row)) for row in result.fetchall()]  # noqa: B905


def find_other_fingerprints(database: duckdb.DuckDBPyConnection, manifest: dict) -> list[str]:  # type: ignore[type-arg]
    """Compare the changes at each epoch with the fingerprints that the publication has recorded of its tables."""
    faults, counted = [], {name: {} for name in manifest["fingerprints"]}  # type: ignore[var-annotated]
    for name, epoch, *sums in database.execute("FROM fingerprint ORDER BY epoch").fetchall():
        first, second = ((low + (high << 32)) % 2**64 for low, high in (sums[:2], sums[2:]))
        if name in counted and (first or second):
            counted[name][str(epoch)] = f"{first:016x}{second:016x}"
    for name, claimed in manifest["fingerprints"].items():
        wrong = [epoch for epoch in {**claimed, **counted[name]} if claimed.get(epoch) != counted[name].get(epoch)]
        faults += [f"{name}: {len(wrong)} epoch(s), the first is {min(wrong, key=int)}"] if wrong else []
    return faults


def compare_digests(manifest: dict) -> list[str]:  # type: ignore[type-arg]
    """Compare the files of the certificate with their digests."""
    return [name for name, digest in manifest["files"].items() if hash_file(Path(name)) != digest]


def combine_batches(manifest: dict) -> list[str]:  # type: ignore[type-arg]
    """Compare the digest of each batch, by which the publication knows it, with those of its landed files."""
    wrong = []
    for batch in manifest["batches"]:  # the digest of a relation's file has the relation's name before it
        files = [f"{each['name'].rpartition('/')[0]}:{each['sha256']}" for each in batch["files"] or ()]
        text = " ".join(sorted(file.removeprefix(":") for file in files)).encode()
        if files and hashlib.sha256(text).hexdigest() != batch["digest"]:
            wrong.append(f"epoch {batch['label']}")
    return wrong


def compare_landing(manifest: dict, landing: Path) -> list[str]:  # type: ignore[type-arg]
    """Compare the files in a landing with the digests of the certificate."""
    return [
        f"epoch={batch['label']}/{each['name']}"
        for batch in manifest["batches"]
        for each in batch["files"] or ()
        if hash_file(landing / f"epoch={batch['label']}" / each["name"]) != each["sha256"]
    ]


def hash_file(path: Path) -> str | None:
    if not path.is_file():
        return None
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def verify(landing: Path | None) -> bool:
    """Verify the certificate in the current folder, print what is right and wrong, and tell whether all is right."""
    manifest, wrong = json.loads(Path("certificate.json").read_text("utf-8")), 0
    checked = {"files of the certificate": compare_digests(manifest), "digests of batches": combine_batches(manifest)}
    if landing is not None:
        checked["landed files"] = compare_landing(manifest, landing)
    try:
        database = read_folder(manifest)
        checked |= {name: find_faults(database, fill_in(query, manifest)) for name, query in CHECKS.items()}
        checked["fingerprints"] = find_other_fingerprints(database, manifest)
    except duckdb.Error as error:
        checked["tables can be read"] = [str(error).splitlines()[0]]
    for name, faults in checked.items():
        wrong += bool(faults)
        print(f"{'WRONG' if faults else 'ok   '} {name}{': ' if faults else ''}{'; '.join(faults)}")
    if lacking := {"edges", "degrees", "triangle_counts", "trussness"} - {*manifest["fingerprints"]}:
        print(f"      not compared, because nothing was recorded: the fingerprints of {', '.join(sorted(lacking))}")
    what = f"revision {manifest['revision']}, epochs {manifest['first_label']} to {manifest['last_label']}"
    print(f"{what}: {f'{wrong} of {len(checked)} checks failed' if wrong else 'every trussness and count is right'}")
    print(f"sha256 of certificate.json: {hash_file(Path('certificate.json'))}")
    return not wrong


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Verify a certificate of altneu.")
    parser.add_argument("folder", type=Path, nargs="?", default=Path(__file__).parent)
    parser.add_argument("--landing", type=Path, help="the folder of the landed files, epoch=… by epoch")
    arguments = parser.parse_args()
    landed = arguments.landing.resolve() if arguments.landing else None
    os.chdir(arguments.folder)
    sys.exit(0 if verify(landed) else 1)
