"""Writes docs/reference.md from the code: settings, commands, views, tables, checks, exit codes.

    python infra/reference.py            writes the page again
    python infra/reference.py --check    says whether it is out of date (exit code 1), and writes nothing

Each text comes from the place where the program reads it: the models of `altneu.toml`, the command line, the table of
views, the declarations of the tables, the suites. Only texts that are not in the code are written here: the contents of
tables (`TABLES`, `SERVING_TABLES`, `DATABASE`). A new table without a text is an error.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, get_args

import typer

from altneu.expectations.model import Expectation
from altneu.expectations.suite import ALL_EXPECTATIONS
from altneu.pipeline.cli.command_line import app
from altneu.pipeline.errors import Exit
from altneu.pipeline.home.home import Home
from altneu.pipeline.home.settings import SETTINGS, Config, Setting
from altneu.pipeline.reading.query_model import COMMON_OPTIONS, FLAGS, VIEWS
from altneu.pipeline.state import schema
from altneu.pipeline.storage.table_schemas import MOTIFS, QUERY_INPUTS
from altneu.pipeline.storage.table_schemas import TABLES as COLUMNS
from altneu.pipeline.storage.table_schemas import table_columns as columns_of

REPO = Path(__file__).resolve().parents[1]
PAGE = REPO / "docs" / "reference.md"
RENEW = "python infra/reference.py"

MODULES = {"plain": "serving_tables"}  # the module of each suite that has another name than its module
# why a suite is not named after what it checks: results that are stored, and reports, have these names
SUITE_NOTES = {
    "plain": "The suite checks the serving tables. It keeps the name under which homes have stored its results.",
    "ledger": "The suite checks the totals. It keeps the name under which homes have stored its results.",
}

RESTATE = {
    "rebuild": "`altneu rebuild`; after a compaction that has folded epochs, `altneu rebuild --from-landing`",
    "reload": "`altneu rebuild --from-landing`",
    "new": "another home",
}

TABLES = {
    "upserts": "the landed rows, with file and line; a replaced batch is retracted",
    "quarantine": "the malformed rows, with file, line and reason",
    "names": 'the dictionary of homes with `ids = "string"`: the number of each name',
    "edges": "the simple undirected graph, `a < b`, as validity intervals: a row is the two diff triples "
    "`(epoch, +diff)` and `(until, -diff)`",
    "degrees": "the sum of `diff` at epochs up to t is the degree of the vertex at t",
    "triangle_counts": "the sum of `diff` at epochs up to t is the number of triangles of the vertex at t",
    "trussness": "at every epoch one `k` for each edge",
    "motif_edges": "homes with motifs: the relations of motifs besides the edges, as validity intervals",
    "motif_counts": "homes with motifs: the sum of `diff` up to t is the number of occurrences at the vertex",
    "arcs": "homes with a query that reads `arcs`: the landed values that are in force, as validity intervals",
    "vertices": "homes with a query that reads `vertices`: the degree and the triangles of each vertex with an edge",
    "query_NAME": "the result of the [declared query](queries.md) NAME: the sum of `diff` up to t is how many "
    "copies of a row there are",
    "query_NAME_state": "where NAME has a GROUP BY or a DISTINCT: for each key and `measure` (0: the number of rows) "
    "the sum of `diff` up to t",
    "relation_NAME": "the rows of the [declared relation](queries.md#relations-of-your-own) NAME that are in force",
    "relation_NAME_rows": "its rows as they landed",
}
QUERY_COLUMNS = {
    "query_NAME": "{query}",
    "query_NAME_state": "{keys}, measure bigint",
    "relation_NAME": "{relation}",
    "relation_NAME_rows": "{relation}, op string, seq bigint, file string, line bigint",
}
SERVING_TABLES = {
    "vertex_history": "a row per vertex for as long as its numbers stay the same: rows that hold at epoch t have "
    "`epoch <= t AND until > t`, rows that hold now have `is_current`. In a row that has not ended `until` is "
    "2^63 - 1 and `valid_to` is 9999-12-31",
    "edge_now": "a row per landed key that makes an edge at the frontier, with its values; `both_ways` is true if the "
    "other direction has a row, too",
    "epoch_totals": "a row per epoch from the first landed one to the frontier",
}
DATABASE = {
    "runs": "one row per run: the revision on which it builds, its state, its heartbeat, and the process that has it",
    "ledger": "one row per published revision, with the snapshot of every table that its readers read",
    "batches": "per run and epoch: the digest of the landed files, and their number of rows",
    "totals": "the totals as diff triples: `measure` is edges, vertices, triangles, wedges, truss or motif",
    "fingerprints": "per run, table and epoch: by how much the run changes the table's [fingerprint](#fingerprints); "
    "empty: the fingerprint is not known from this run on",
    "proofs": "per run, as JSON: the proof of its truss stage for the epochs that it has replayed",
    "approvals": "per run that waits or has waited for a person: who approved or rejected it, when and why",
    "stages": "per run and stage: its state, its seconds, and its result",
    "checks": "the results of all checks, of runs and of audits",
    "notes": "the notes of people about incidents: acknowledgements, and mutes with their end",
    "digests": "digests of landed files, and of the batches in folders, so that what is unchanged is read only once",
    "alerts": "the alerts that were sent about incidents and other problems, and to whom: each is sent once",
    "delivery_cursors": "the revision up to which events were delivered to the followers of a scheduler's asset, or "
    "up to which a consumer has processed one of its partitions, and the task that is at it",
    "home": "the name of the home's catalog, and the places for which its tables were made",
    "altneu_version": "the version of these tables; a run, `altneu land` and `altneu doctor` upgrade them",
}

FINGERPRINTS = """### Fingerprints

Each run records by how much it changes the fingerprint of every table at every epoch: the sum, over the rows that it
writes, of `diff` times a hash of the other columns, 128 bits. The fingerprint of a table's contents at an epoch is the
sum of all changes up to that epoch, so it does not depend on order, files or revisions. `altneu compact` proves by
fingerprints that it has changed nothing, `altneu rebuild` shows by them what it has changed, and
`altneu audit --fingerprints` compares them with everything that is stored.

`altneu status --format json` prints the fingerprints of the contents at the frontier (for `upserts`, after a compaction
has folded epochs, of the epochs from `since` on). Spark SQL computes the fingerprints of a copy. This query computes
those of two tables at the frontier 12:

```sql
WITH hashes AS (
  SELECT 'trussness' AS name, xxhash64(a, b, k) AS x, xxhash64(1L, a, b, k) AS y, diff
  FROM trussness WHERE epoch <= 12
  UNION ALL
  SELECT 'edges', xxhash64(a, b), xxhash64(1L, a, b), diff
  FROM edges WHERE epoch <= 12 AND until > 12
), sums AS (
  SELECT name, pmod(sum(CAST(x AS DECIMAL(20, 0)) * diff), 18446744073709551616) AS x,
    pmod(sum(CAST(y AS DECIMAL(20, 0)) * diff), 18446744073709551616) AS y
  FROM hashes GROUP BY name
)
SELECT name, lower(concat(
  lpad(conv(CAST(x AS STRING), 10, 16), 16, '0'), lpad(conv(CAST(y AS STRING), 10, 16), 16, '0')
)) AS fingerprint FROM sums
```

`degrees` and `triangle_counts` use `xxhash64(vertex)`. The other tables have columns that may be null, each of which is
hashed as two values, its name and its value: see `pipeline/storage/table_fingerprints.py`.

""".splitlines()


# -- Markdown ----------------------------------------------------------------------------------------------------


def cell(text: str) -> str:
    return re.sub(r"\s+", " ", text).replace("|", "\\|").strip()


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [heads, ["---"] * len(heads), *rows]
    return [re.sub(r" {2,}", " ", f"| {' | '.join(map(cell, line))} |") for line in lines] + [""]


def code(text: object) -> str:
    return f"`{text}`"


def plain(text: str) -> str:
    """Return a sentence of the program for the page, with its settings and options as code."""
    keys = "|".join(setting.key for setting in SETTINGS if setting.key)
    form = rf"(?<![`\w-])(\[[a-z]+\](?: (?:{keys})\b)?|--[a-z][a-z-]+)(?![\w`(])"
    parts = re.split(r"(`[^`]*`)", text)  # every second part is code already
    return "".join(part if number % 2 else re.sub(form, r"`\1`", part) for number, part in enumerate(parts))


# -- Settings ----------------------------------------------------------------------------------------------------


def needs(setting: Setting) -> str:
    """Return what has to be done after a change of a setting."""
    return RESTATE[setting.about.restates] if setting.about.restates else setting.about.change


def toml(value: Any) -> str:
    if value is None:
        return "not set"
    return code(f'"{value}"' if isinstance(value, str) else "{}" if value == {} else value)


def settings_page() -> list[str]:
    lines = [
        "## Settings",
        "",
        "The settings are in `altneu.toml` in the home. Every setting has a default; a new home has all of them, as "
        "comments. A file with a mistake is refused, and the error lists every mistake in it.",
        "",
    ]
    rows, own = [], []
    for setting in SETTINGS:
        about, meaning = setting.about, plain(setting.about.meaning)
        if setting.key is None:
            example = "<br>".join(map(code, about.example.splitlines()))
            column = "a new column: nothing; another type, or a removed column: " if about.restates == "reload" else ""
            own.append([code(f"[{setting.section}]"), example, meaning, column + needs(setting)])
            continue
        if setting.default is None and re.fullmatch(r"\d+", about.example):
            meaning = f"{code(f'{setting.key} = {about.example}')}: {meaning}"
        place = code(f"[{setting.section}] {setting.key}")
        rows.append([place, toml(setting.default), plain(about.allowed), meaning, needs(setting)])
    heads = ["setting", "default", "allowed", "meaning", "what a change needs, once something is published"]
    lines += table(heads, rows)
    lines += ["Three sections hold names of your own:", ""]
    return lines + table(["section", "for example", "meaning", "what a change needs"], own)


# -- Commands ----------------------------------------------------------------------------------------------------


def commands() -> list[tuple[str, Any]]:
    """Return every command with its name, sub-commands after their group, in the order of the help."""
    out = []
    for name, command in typer.main.get_command(app).commands.items():  # type: ignore[attr-defined]
        out.append((name, command))
        out += [(f"{name} {inner}", each) for inner, each in getattr(command, "commands", {}).items()]
    return out


def usage(name: str, command: Any) -> str:
    words = [f"altneu {name}"]
    for each in command.params:
        if each.param_type_name == "argument":
            word = each.metavar or each.name.upper()
            word += "…" if each.nargs == -1 and "…" not in word else ""
            words.append(word if each.required or word.startswith("[") else f"[{word}]")
    words += [flag(each) for each in options(command) if each.required]
    return " ".join([*words, "[OPTIONS]"] if any(not each.required for each in options(command)) else words)


def own(each: Any) -> bool:
    """Tell whether an option is one of the command's own, not one that every command takes."""
    return getattr(each, "rich_help_panel", None) != "Everywhere" and not getattr(each, "hidden", False)


def options(command: Any) -> list[Any]:
    return [each for each in command.params if each.param_type_name == "option" and own(each)]


def kind(each: Any) -> Any:
    """Return the Python type of a value, or of the elements of a list."""
    annotation = each.type_descriptor.annotation
    return (get_args(annotation) or (annotation,))[0]


def choices(each: Any) -> list[str]:
    return [str(one.value) for one in kind(each)] if issubclass(kind(each), Enum) else []


NAMED = {str: "TEXT", int: "N", float: "NUMBER", Path: "PATH"}


def flag(each: Any) -> str:
    names = ", ".join(each.opts)
    if each.secondary_opts:
        names += f" / {', '.join(each.secondary_opts)}"
    if each.is_flag or kind(each) is bool:
        return names
    return f"{names} {each.metavar or '|'.join(choices(each)) or NAMED[kind(each)]}"


def given(each: Any) -> str:
    default = getattr(each.default, "value", each.default)
    return "" if default in (None, False, (), []) else code(default)


def flags(parameters: Iterable[Any]) -> list[str]:
    rows = [[code(flag(each)), plain(each.help or ""), given(each)] for each in parameters]
    return table(["option", "meaning", "default"], rows)


def commands_page() -> list[str]:
    lines = ["## Commands", "", "Every command takes these options, before or after its name:", ""]
    listed = commands()
    everywhere = [e for e in listed[0][1].params if e.param_type_name == "option" and not own(e)]
    lines += flags(everywhere)
    lines += [f"The exit codes of all commands: {', '.join(f'{code(int(e))} {WORDS[e]}' for e in Exit)}.", ""]
    for name, command in listed:
        lines += [f"### altneu {name}", "", "```", usage(name, command), "```", ""]
        for paragraph in re.split(r"\n\s*\n", command.help or ""):
            text = " ".join(line.strip() for line in paragraph.strip().splitlines())
            if text.startswith("- **"):  # the views, which have their own section
                continue
            if text.startswith("The views, and which options"):
                text = "The views and their options are [below](#views-of-altneu-show)."
            lines += [plain(text), ""]
        arguments = [each for each in command.params if each.param_type_name == "argument" and each.help]
        if arguments:
            lines += table(
                ["argument", "meaning"],
                [[code((e.metavar or e.name.upper()).strip("[]")), describe_argument(e)] for e in arguments],
            )
        if options(command):
            lines += flags(options(command))
    return lines


def describe_argument(each: Any) -> str:
    listed = f" One of {', '.join(map(code, choices(each)))}." if choices(each) else ""
    return f"{each.help}{listed}"


WORDS = {
    Exit.OK: "success",
    Exit.FAILED: "a check or a run failed",
    Exit.USAGE: "wrong use or configuration; nothing was changed",
    Exit.INTERRUPTED: "interrupted (Ctrl-C or SIGTERM)",
}


# -- Views, tables, checks ---------------------------------------------------------------------------------------


def views_page() -> list[str]:
    lines = [
        "## Views of altneu show",
        "",
        f"All views take {', '.join(code(FLAGS[option]) for option in COMMON_OPTIONS)}, `--format` and `--output`. An "
        "option that a view cannot use is an error. Motifs are further columns of `totals` and `vertices`. "
        "`altneu.Graph` has a method for each view, with the same name and arguments.",
        "",
    ]
    rows = []
    for view in VIEWS:
        taken_options = " ".join(code(FLAGS[option]) for option in view.options if option != "since_revision")
        rows.append([code(view.title), view.description, taken_options, " ".join(map(code, view.columns))])
    return lines + table(["`altneu show …`", "contents", "options", "columns"], rows)


COLUMN_WORDS = {"{values}": "the columns of `[values]`", "{query}": "the columns of its SELECT", "{keys}": "its keys"}
COLUMN_WORDS |= {"{relation}": "the columns of its key and its values"}


def columns(declared: str) -> str:
    named = []
    for column in declared.split(","):
        name, _, kind = column.strip().partition(" ")
        named.append(COLUMN_WORDS.get(name) or f"{code(name)} {kind}".strip())
    return ", ".join(named)


def serving_table_columns(table: str) -> str:
    """Return the columns of a serving table in a home whose epochs are times, with integer ids, no values and no
    motifs.
    """
    home = Home(Path("any"), Config.model_validate({"epochs": {"every": "1d"}}))
    named = [f"{code(name)} {kind}" for name, kind in columns_of(home, table).items()]
    return ", ".join([*named[:2], "the columns of `[values]`", *named[2:]] if table == "edge_now" else named)


def tables_page() -> list[str]:
    declared = COLUMNS | MOTIFS | QUERY_INPUTS
    lines = [
        "## Tables",
        "",
        "The tables are Apache Iceberg tables in the warehouse. Besides its own columns, each has `epoch`, `revision` "
        "and `diff` (bigint). Read them by `altneu.Graph`. If you read them directly, the newest snapshot of a "
        "table is the last publication; after a rollback and a compaction it may have rows of revisions that the "
        "ledger lists as `hidden`.",
        "",
    ]
    rows = [[code(name), columns(own), TABLES[name]] for name, own in declared.items()]
    rows += [[code(name), columns(own), TABLES[name]] for name, own in QUERY_COLUMNS.items()]
    lines += table(["table", "its own columns", "contents"], rows)
    lines += [
        "### Serving tables",
        "",
        "Homes with `[publish] tables` have these; [other programs](engines.md#serving-tables) says how to use them. "
        "Vertices are bigint or, if `ids` are strings, string. `valid_from`, `valid_to` and `begins` exist if epochs "
        "are times; each motif adds one column, `motif_NAME`. The tables have no `revision` and no `diff`.",
        "",
    ]
    rows = [[code(name), serving_table_columns(name), about] for name, about in SERVING_TABLES.items()]
    lines += table(["table", "columns", "contents"], rows)
    lines += FINGERPRINTS
    lines += [
        "## The database",
        "",
        "The database is SQLite in the home, or PostgreSQL. A run writes rows under its `run_id`; its row in `ledger` "
        "is written last and makes them visible. The columns of the primary key are in bold.",
        "",
    ]
    rows = []
    for name, declared_table in schema.metadata.tables.items():
        named = [f"**{code(c.name)}**" if c.primary_key else code(c.name) for c in declared_table.columns]
        rows.append([code(name), " ".join(named), DATABASE[name]])
    return lines + table(["table", "columns", "contents"], rows)


def checks_page() -> list[str]:
    lines = [
        "## Checks",
        "",
        "A run makes these checks before it publishes. If a critical check fails, the run stops and nothing is "
        "published; if a warning fails, the revision is published with a mark; an info is only recorded. "
        "`altneu show checks` and the epoch's page show the results.",
        "",
    ]
    suites: dict[str, list[Expectation]] = {}
    for each in ALL_EXPECTATIONS:
        suites.setdefault(each.suite, []).append(each)
    for suite, suite_checks in suites.items():
        about = (
            (sys.modules[f"altneu.expectations.{MODULES.get(suite, suite)}"].__doc__ or "")
            .strip()
            .splitlines()[0]
            .partition(": ")[2]
        )
        lines += [
            f"### {suite}",
            "",
            f"{about[0].upper()}{about[1:]}",
            "",
            *([SUITE_NOTES[suite], ""] if suite in SUITE_NOTES else []),
        ]
        remedies = [remedy(each) for each in suite_checks]
        usual = max(remedies, key=remedies.count)
        if remedies.count(usual) == 1:
            usual = ""
        if usual:
            lines += [f"If one of these checks fails: {usual}.", ""]
        own = [each if each != usual else "" for each in remedies]
        lines += table(
            ["check", "severity", "meaning", *(["what to do if it fails"] if any(own) else [])],
            [
                [e.name, e.severity, plain(e.meaning), *([then] if any(own) else [])]
                for e, then in zip(suite_checks, own, strict=True)
            ],
        )
    return lines


def remedy(each: Expectation) -> str:
    return plain(each.remedy.replace("{epoch}", "EPOCH")).rstrip(".")


def page() -> str:
    lines = [
        "# Reference",
        "",
        f"This page is generated from the code by `{RENEW}`: do not edit it. The words are explained in "
        "[concepts](concepts.md), and the tasks in the [documentation by task](README.md).",
        "",
        "[Settings](#settings) · [Commands](#commands) · [Views](#views-of-altneu-show) · [Tables](#tables) · "
        "[The database](#the-database) · [Checks](#checks)",
        "",
    ]
    pages = (settings_page, commands_page, views_page, tables_page, checks_page)
    return "\n".join([*lines, *(line for make in pages for line in make())]).rstrip() + "\n"


def main(arguments: list[str]) -> int:
    text = page()
    if arguments == ["--check"]:
        same = PAGE.exists() and PAGE.read_text(encoding="utf-8") == text
        print(f"{PAGE.relative_to(REPO)} is {'up to date' if same else f'out of date; next: {RENEW}'}")
        return 0 if same else 1
    PAGE.write_text(text, encoding="utf-8")
    print(f"{PAGE.relative_to(REPO)} is written")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
