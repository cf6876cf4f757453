"""The difference between two revisions as a person looks at it: with its first rows, the next command and a summary."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..formatting import escape_controls
from ..home.home import Home
from ..state.totals import MEASURES
from . import approval

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ..reading.revision_diff import RevisionDiff

Document = dict[str, Any]
VIEWS = ("vertices", "edges")
SHOWN_ROWS = 10  # rows that are shown


def diff_document(home: Home, difference: RevisionDiff, spark: SparkSession) -> dict[str, Any]:
    """Return a difference as a JSON document, with the first rows of vertices and edges; EXECUTES."""
    document = difference.to_document()
    for view in VIEWS:
        frame = difference.select_rows(spark, view).persist()
        first = [row.asDict() for row in label_epochs(home, frame, view).take(SHOWN_ROWS)]
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
    label = F.udf(lambda epoch: home.schedule.format_label(epoch))  # Spark warns of hints that it does not use
    return rows.withColumn("first", label("first")).withColumn("last", label("last")).select(*COLUMNS[view])


def diff_summary(difference: RevisionDiff) -> str:
    """Describe the totals and checks of a difference in Markdown, from the SQL database alone."""
    document = difference.to_document()
    lines = [f"From {document['before']['name']} to {document['after']['name']}."]
    for each in document["totals"][:SHOWN_ROWS]:
        span = each["first"] if each["first"] == each["last"] else f"{each['first']} to {each['last']}"
        moved = [
            f"{name.replace('_', ' ')} {both['before']:,} → {both['after']:,}"
            for name in ("vertices", "edges", "triangles", "max_trussness")
            if (both := each[name])["before"] != both["after"]
        ]
        lines.append(f"- {span}: {', '.join(moved) or 'only trussness or motifs'}")
    if len(document["totals"]) > SHOWN_ROWS:
        lines.append(f"- {len(document['totals']) - SHOWN_ROWS:,} more spans of epochs")
    if not document["totals"]:
        lines.append("- no total differs")
    for check in document["checks"][:SHOWN_ROWS]:
        turned = "would pass again" if check["after"] else "would fail"
        lines.append(f"- {check['epoch']}: **{check['name']}** ({check['severity']}) {turned}: {check['observed']}")
    return "\n".join(lines)


def diff_markdown(document: Document) -> str:
    """Write a difference as Markdown, for a pull request or a task of Airflow; of rows those of the document."""
    before, after = document["before"], document["after"]
    lines = [f"### What readers would see change: {before['name']} → {after['name']}", ""]
    listed = [view for view in VIEWS if view in document]
    queries = document.get("queries", [])
    if not document["totals"] and not queries and not any(document[view]["count"] for view in listed):
        lines += ["No difference.", ""]
    lines += _totals_table(document["totals"])
    sizes = [each for each in document["trusses"] if each["before"] != each["after"]]
    lines += _markdown_table(
        f"Trusses at {document['last']}",
        [{"k": each["k"], "edges": _write_step(each)} for each in sizes],
    )
    words = {None: "not made", True: "passed", False: "failed"}
    checks = [
        {name: each[name] for name in ("epoch", "name", "severity")}
        | {"result": f"{words[each['before']]} → {words[each['after']]}", "observed": each["observed"]}
        for each in document["checks"]
    ]
    lines += _markdown_table("Checks", checks)
    lines += _markdown_table(f"Queries at {document['last']}", queries)
    for view in listed:
        rows = document[view]["rows"]
        first = f", the largest {len(rows)}" if document[view]["count"] > len(rows) else ""
        lines += _markdown_table(f"{document[view]['count']:,} spans of {view}{first}", rows)
    return "\n".join(lines)


def _totals_table(totals: Sequence[Document]) -> list[str]:
    rows = []
    for each in totals:
        named = {name: each[name] for name in MEASURES} | each["motifs"]
        steps = {name: _write_step(both) for name, both in named.items()}
        span = each["first"] if each["first"] == each["last"] else f"{each['first']} to {each['last']}"
        rows.append({"epochs": span, **steps})
    return _markdown_table("Totals", rows)


def _markdown_table(title: str, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Write the first rows as a table; nothing without rows."""
    if not rows:
        return []

    def write_line(cells: Iterable[object]) -> str:
        return f"| {' | '.join(map(_escape_markdown, cells))} |"

    lines = [f"**{title}**", "", write_line(name.replace("_", " ") for name in rows[0])]
    lines += ["|---" * len(rows[0]) + "|", *(write_line(row.values()) for row in rows[:SHOWN_ROWS])]
    return [*lines, "", *([f"… and {len(rows) - SHOWN_ROWS:,} more.", ""] if len(rows) > SHOWN_ROWS else [])]


def _escape_markdown(value: object) -> str:
    """Escape a name or a value, which may hold anything, within a cell."""
    return re.sub(r"([\\`*_{}\[\]<>|#~])", r"\\\1", escape_controls(str(value))).replace("\\-\\-\\-", "---")


def _write_step(both: Mapping[str, int]) -> str:
    same = both["before"] == both["after"]
    return f"{both['after']:,}" if same else f"{both['before']:,} → {both['after']:,}"
