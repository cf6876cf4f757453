"""The difference between two revisions as a person looks at it: with its first rows, the next command and a summary."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..home.home import Home
from ..state.ledger import Ledger
from ..state.records import RunRecord
from . import approval

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ..reading.revision_diff import RevisionDiff

VIEWS = ("vertices", "edges")
FIRST = 10  # rows that are shown


def diff_held_run(home: Home, ledger: Ledger, run: RunRecord) -> RevisionDiff:
    """Return the difference between a held run's parent and what the run would publish."""
    from ..reading.revision_diff import DiffSide, RevisionDiff

    after = DiffSide(home, ledger, approval.unpublished_revision(ledger, run), run)
    return RevisionDiff(DiffSide(home, ledger, ledger.runs.get_parent(run)), after)


def diff_document(home: Home, difference: RevisionDiff, spark: SparkSession) -> dict[str, Any]:
    """Return a difference as a JSON document, with the first rows of vertices and edges; EXECUTES."""
    document = difference.to_document()
    for view in VIEWS:
        frame = difference.select_rows(spark, view).persist()
        first = [row.asDict() for row in label_epochs(home, frame, view).take(FIRST)]
        document[view] = {"count": frame.count(), "rows": first}
        if view == "edges":
            moved = {sizes["k"]: sizes for sizes in difference.truss_movements(frame)}
            none = {"entered": 0, "left": 0}
            document["trusses"] = [{**sizes, **none, **moved.get(sizes["k"], {})} for sizes in document["trusses"]]
        frame.unpersist()
    document["queries"] = difference.changed_queries(spark)
    run = difference.after.run
    document["next"] = None
    if run is not None:
        by = approval.newer_revision(difference.after.ledger, run)
        document["next"] = f"altneu publish {run.run_id}" if by is None else approval.rerun_command(home, run)
    return document


def label_epochs(home: Home, rows: DataFrame, view: str) -> DataFrame:
    """Replace the epochs in the rows of a view by their labels."""
    from pyspark.sql import functions as F

    from ..reading.revision_diff import COLUMNS

    if home.schedule.seconds is None:
        return rows
    label = F.udf(home.schedule.format_label)
    return rows.withColumn("first", label("first")).withColumn("last", label("last")).select(*COLUMNS[view])


def diff_summary(difference: RevisionDiff) -> str:
    """Describe the totals and checks of a difference in Markdown, from the SQL database alone."""
    document = difference.to_document()
    lines = [f"From {document['before']['name']} to {document['after']['name']}."]
    for each in document["totals"][:FIRST]:
        span = each["first"] if each["first"] == each["last"] else f"{each['first']} to {each['last']}"
        moved = [
            f"{name.replace('_', ' ')} {both['before']:,} → {both['after']:,}"
            for name in ("vertices", "edges", "triangles", "max_trussness")
            if (both := each[name])["before"] != both["after"]
        ]
        lines.append(f"- {span}: {', '.join(moved) or 'only trussness or motifs'}")
    if len(document["totals"]) > FIRST:
        lines.append(f"- {len(document['totals']) - FIRST:,} more spans of epochs")
    if not document["totals"]:
        lines.append("- no total differs")
    for check in document["checks"][:FIRST]:
        turned = "would pass again" if check["after"] else "would fail"
        lines.append(f"- {check['epoch']}: **{check['name']}** ({check['severity']}) {turned}: {check['observed']}")
    return "\n".join(lines)
