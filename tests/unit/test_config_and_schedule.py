"""Settings: all problems reported at once. Epochs: labels and integers are two names of one thing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from altneu.pipeline import landing
from altneu.pipeline.errors import UsageError
from altneu.pipeline.home.home import Home, parse_settings
from altneu.pipeline.home.schedule import Schedule
from altneu.pipeline.landing.epoch_states import list_epoch_rows
from altneu.pipeline.reading import views
from altneu.pipeline.reading.engines import Engines
from altneu.pipeline.reading.query_executor import run_query
from altneu.pipeline.reading.query_model import Question
from altneu.pipeline.run.choices.plan_choice import Scope
from altneu.pipeline.run.choices.plan_choices import AuditChoice
from altneu.pipeline.state.ledger import Ledger
from altneu.pipeline.state.records import EMPTY, RunKind, StagedBatch
from tests.report.seed import write
from tests.unit.test_decisions import KnownNumbers


def test_all_problems_at_once() -> None:
    text = """
[epochs]
every = "1w"
[edges]
live_for = 0
wher = "x > 1"
[values]
src = "long"
rating = "int"
[surprise]
"""
    with pytest.raises(UsageError) as caught:
        parse_settings(text, "altneu.toml")
    for part in ("1w", "live_for = 0", "wher", "rating", "src", "[surprise]", "6 problem(s)"):
        assert part in caught.value.what


@pytest.mark.parametrize(
    "text",
    [
        "[edges\n",
        "[edges]\nlive_for = true\n",
        "[ingest]\nmax_bad_share = 1.5\n",
        "[audit]\nepochs = 'some'\n",
        "[values]\n_mine = 'long'\n",
        "[values]\nCopies = 'long'\n",
    ],
)
def test_wrong_settings(text: str) -> None:
    with pytest.raises(UsageError):
        parse_settings(text, "altneu.toml")


@pytest.mark.parametrize(
    ("audit", "kind", "chosen"),
    [
        ("frontier", "run", {6, 9}),
        ("all", "run", {4, 5, 6, 9}),
        ("every 2", "run", {4, 6, 9}),
        ("frontier", "rebuild", {2, 3, 4, 5, 6, 8, 9}),
        ("all", "rebuild", {2, 3, 4, 5, 6, 8, 9}),
    ],
)
def test_which_epochs_a_run_recomputes(audit: str, kind: str, chosen: set[int]) -> None:
    """Epochs 4 to 6 are run; 0 to 3, 8 and 9 are published, and a compaction has folded what was before 2."""
    parent = replace(EMPTY, revision=1, frontier=9, since=2)
    config = parse_settings(f"[audit]\nepochs = '{audit}'\n", "x")
    decision = AuditChoice.choose(
        Scope(parent, (4, 5, 6), RunKind(kind)), config, KnownNumbers(epochs={0, 1, 2, 3, 8, 9})
    )
    assert decision and set(decision.epochs) == chosen


def test_a_sample_of_epochs_to_recompute_has_the_frontier() -> None:
    config = parse_settings("[audit]\nepochs = 'sample 7'\n", "x")
    scope = Scope(replace(EMPTY, revision=1, frontier=49), (20,))
    decision, again = (AuditChoice.choose(scope, config, KnownNumbers(epochs=set(range(50)))) for _ in range(2))
    assert decision and decision == again  # a preview draws what the run draws
    assert {20, 49} <= set(decision.epochs) <= set(range(50)) and 7 <= len(decision.epochs) <= 8


def test_motifs() -> None:
    config = parse_settings('[motifs]\nwedge = "a-b, b-c"\nloops = ["a->b, b->c, c->a", "a->b, b->a, a-c"]\n', "x")
    assert {name: len(found) for name, found in config.motif_patterns().items()} == {"wedge": 1, "loops": 2}
    assert config.semantic_digest() != parse_settings("", "x").semantic_digest()
    wrong = '[motifs]\ntriangles = "a-b"\n"a b" = "a-b"\nx = "a-a"\nY = 3\ny = "a-b, c-d"\n'
    with pytest.raises(UsageError) as caught:
        parse_settings(wrong, "altneu.toml")
    for part in (
        "triangles: a name",
        '"a b": a name',
        "x = 'a-a'",
        "Y = 3",
        "not connected",
        "upper and lower case",
        "6 problem(s)",
    ):
        assert part in caught.value.what


def test_a_setting_where_a_section_stands() -> None:
    with pytest.raises(UsageError, match=r"motifs = 3: expected the section \[motifs\]"):
        parse_settings("motifs = 3\n", "altneu.toml")


def test_the_digest_follows_the_meaning_only() -> None:
    base = parse_settings("", "x").semantic_digest()
    assert parse_settings("[spark]\nmaster = 'local[1]'\n", "x").semantic_digest() == base
    assert parse_settings("[edges]\nlive_for = 3\n", "x").semantic_digest() != base
    one, two = "[values]\nx='long'\ny='long'\n", "[values]\ny='long'\nx='long'\n"
    assert (
        parse_settings(one, "x").semantic_digest() != parse_settings(two, "x").semantic_digest()
    )  # their order decides which value is greater


def test_a_home_is_made_and_declared(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not an altneu home"):
        Home.open(tmp_path / "none")
    home = Home.open(tmp_path / "new", create=True)
    home = home.declare_settings(epochs={"every": "1d"}, edges={"live_for": 30}, values={"rating": "long"})
    again = Home.open(tmp_path / "new")
    assert again.config == home.config
    assert (again.config.epochs.every, again.config.edges.live_for, again.config.values) == (
        "1d",
        30,
        {"rating": "long"},
    )
    again.declare_settings(values={"hue": "string"})
    assert list(Home.open(tmp_path / "new").config.values) == ["rating", "hue"]


@pytest.mark.parametrize("every", ["1d", "7d", "12h", "1h", "15m", None])
@pytest.mark.parametrize("epoch", [-3, 0, 1, 12_523])
def test_label_and_epoch_are_inverse(every: str | None, epoch: int) -> None:
    schedule = Schedule.from_text(every)
    assert schedule.parse_epoch(schedule.format_label(epoch)) == epoch
    assert schedule.parse_epoch(str(epoch)) == epoch


def test_labels() -> None:
    assert Schedule.from_text("1d").format_label(12_523) == "2004-04-15"
    assert Schedule.from_text("12h").format_label(25_047) == "2004-04-15T12"
    assert Schedule.from_text("1d").parse_epoch("2004-04-15") == 12_523
    for text in ("2004-04-15T12", "tomorrow"):
        with pytest.raises(UsageError):
            Schedule.from_text("1d").parse_epoch(text)
    with pytest.raises(UsageError):
        Schedule.from_text(None).parse_epoch("2004-04-15")
    for every, ends in ((None, -(2**63)), ("1d", 2**63 - 2)):
        assert Schedule.from_text(every).parse_epoch(str(ends)) == ends
        for beyond in (-(2**63) - 1, 2**63 - 1):  # the greatest bigint is the open end of intervals
            with pytest.raises(UsageError, match="is not between"):
                Schedule.from_text(every).parse_epoch(str(beyond))


WRONG = {  # the file -> what must be said of it
    '[values]\n"a.b" = "long"': '[values] "a.b": a name consists of',
    '[values]\n"x bigint, y" = "long"': '[values] "x bigint, y": a name consists of',
    '[values]\n"" = "long"': '[values] "": a name consists of',
    '[values]\n" w" = "long"': '[values] " w": a name consists of',
    '[values]\n"w`" = "long"': "a name consists of",
    '[values]\nrating = "long"\nRating = "long"': "[values] Rating: differs from rating only in upper and lower case",
    '[edges]\nwhere = "not SQL ((("': "[edges] where = 'not SQL (((': the condition ends after '(' at position 11",
    '[edges]\nwhere = ""': "[edges] where = '': the condition is empty",
    '[edges]\nwhere = "ratng > 1"\n[values]\nrating = "long"': "no column 'ratng' (position 1). Did you mean rating?",
    '[edges]\nwhere = "rating > 1"': '[values] rating = "long"',
    '[edges]\nwhere = "rating"\n[values]\nrating = "long"': "rating is a value, not a condition",
    '[edges]\nwhere = "count(src) > 1"': "count() uses many rows",
    '[edges]\nwhere = "rand() > 0.5"': "rand() has another value on the next run",
    "[motifs]\nm = 'a->b where w > 0, b->c'": "where w > 0: there is no column 'w'",
    "[motifs]\nm = 'a->b where src >, b->c'": "where src >: the condition ends after '>'",
    "[ingest]\nmax_revision_mb = -1": "[ingest] max_revision_mb = -1: more than 0",
    "[ingest]\nmax_revision_mb = nan": "[ingest] max_revision_mb = nan: more than 0",
    "[ingest]\nmax_bad_share = nan": "[ingest] max_bad_share = nan: between 0 and 1",
    "[edges]\nlive_for = 99999999999999999999": "at least 1 epoch",
    "[truss]\nlimit_edges = -1": "[truss] limit_edges = -1: at least 0",
    "[triangles]\nlimit_edges = 0": "[triangles] limit_edges = 0: at least 1",
    "[retention]\nepochs = 0": "[retention] epochs = 0: at least 1",
    "[publish]\ntables = ['changes']\n[storage]\ncatalog = { type = 'rest', uri = 'https://h' }": "a REST",
    "[publish]\ntables = ['change']": 'a list of "vertex_history", "edge_now", "epoch_totals" and "changes"',
    "[retention]\nrevisions = 0": "[retention] revisions = 0: at least 1",
    "[audit]\nepochs = 'every 0'": "[audit] epochs = 'every 0': \"frontier\"",
    "[vertices]\nids = 'text'": "[vertices] ids = 'text': \"integer\" or \"string\"",
    "[storage]\ndatabase = 'mysql://me:hunter2@x/y'": "[storage] database = 'mysql://me:***@x/y': it contains a",
    "[storage]\ndatabase = 'mysql://me@x/y'": "[storage] database = 'mysql://me@x/y': \"sqlite:",
    "[storage]\ndatabase = 'postgresql+psycopg://me:hunter2@h/d'": "in this file: leave it out, and set PGPASSWORD",
    "[storage]\ndatabase = 'postgresql://me@h/d?password=hunter2'": "postgresql://me@h/d?***': it contains a password",
    "[storage]\ndatabase = 'postgresql://me@h/d?sslpassword=hunter2'": "h/d?***': it contains a password",
    "database = 'postgresql://me:hunter2@h/d'": "database = 'postgresql://me:***@h/d' is not in a section. Did you",
    "password = 'hunter2'": "password = *** is not in a section",
    "storage = 'postgresql://me:hunter2@h/d'": "storage = 'postgresql://me:***@h/d': expected the section [storage]",
    "[storage]\npassword = 'hunter2'": "[storage] password is not a setting",
    "[storage]\ncatalog = { type = 'rest', uri = 'https://me:hunter2@h' }": "uri = 'https://me:***@h': a table",
    "[storage]\ncatalog = { type = 'rest', uri = 'https://h', token = 'hunter2' }": "[storage] catalog",
    "[alerts]\npages = 'https://me:hunter2@h/reports'": "[alerts] pages = 'https://me:***@h/reports': an address",
    "[spark]\nmaster = 'sc://h:1/;token=hunter2'": "/;token=***': it contains a token, which is not allowed",
    "[spark]\nconf = { 'spark.hadoop.fs.s3a.secret.key' = 'hunter2' }": "s3a.secret.key: it is a secret",
    "[spark]\nconf = { 'spark.hadoop.fs.azure.account.key.a.dfs.core.windows.net' = 'hunter2' }": "SPARK_CONF_DIR",
    "[spark]\nconf = { 'spark.executorEnv.PGPASSWORD' = 'hunter2' }": "Env.PGPASSWORD: it is a secret",
    "[spark]\nconf = { 'spark.driver.extraJavaOptions' = '-Dhttps.proxyPassword=hunter2' }": "Options: it is a secret",
    "[storage]\ndatabase = 'garbage'": "[storage] database = 'garbage': \"sqlite:",
    "[storage]\ndatabase = 'sqlite://'": "[storage] database = 'sqlite://': \"sqlite:",
    "[storage]\ndatabase = 'postgresql+pg8000://x/y'": "postgresql+psycopg://user@host/altneu",
    "[storage]\nwarehouse = ''": "[storage] warehouse = '': a folder",
    "[storage]\nwarehouse = 's3://key:hunter2@bucket/x'": "[storage] warehouse = 's3://key:***@bucket/x': a folder",
    "[storage]\nwarehouse = 's3:/bucket'": "the URI of one, without keys",
    "[landing]\nuri = 's3://hunter2@bucket/x'": "[landing] uri = 's3://***@bucket/x': a folder",
    "[landing]\nuri = 's3://bucket/x?secret_key=hunter2'": "[landing] uri = 's3://bucket/x?***': a folder",
    "[landing]\nuri = 'ftp://host/x'": "[landing] uri = 'ftp://host/x': a folder or the URI of one (s3,",
    "[landing]\nuri = ''": "[landing] uri = '': a folder",
    "[spark]\nmaster = 'nonsense'": "[spark] master = 'nonsense': \"local[*]\"",
    "[spark]\nmaster = 'local[0]'": "[spark] master = 'local[0]': \"local[*]\"",
    "[spark]\nconf = { 'spark.driver.memory' = 'lots' }": "spark.driver.memory = 'lots': expected a whole number",
    "[spark]\nconf = { 'spark.driver.memory' = '100m' }": "at least 512m",
    "[spark.conf]\nspark.driver.memory = '8g'": "write a name with dots in quotes",
    "[edge]\nlive_for = 3": "[edge] is not a section of altneu.toml. Did you mean edges?",
    "[edges]\nlivefor = 3": "[edges] livefor is not a setting. Did you mean live_for?",
}  # fmt: skip


@pytest.mark.parametrize("text", WRONG)
def test_what_is_said_of_a_wrong_setting(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_settings(text, "altneu.toml")
    assert "altneu.toml has 1 problem(s)" in caught.value.what
    assert WRONG[text] in caught.value.what
    assert "hunter2" not in caught.value.what


def test_all_wrong_settings_are_told_at_once() -> None:
    text = "[ingest]\nmax_revision_mb = -1\n[edges]\nwhere = '((('\n[motifs]\nm = 'a-b where x > 0'\n"
    text += "[spark]\nmaster = 'x'"
    with pytest.raises(UsageError, match=r"4 problem\(s\)"):
        parse_settings(text, "altneu.toml")


def test_settings_that_are_right() -> None:
    text = """
[values]
"my col" = "long"
"größe" = "double"
tag = "string"
good = "boolean"
order = "long"
[edges]
where = "good AND größe > 1.5 AND `my col` IN (1, 2) OR upper(tag) LIKE 'A%' AND order <> 3"
[motifs]
m = "a->b where `my col` in (1, 2-3, 4) and tag = 'x, a-b  c', b-c where größe > 0"
[spark]
conf = { "spark.sql.shuffle.partitions" = 4, "spark.driver.memory" = "2g", "spark.authenticate.secret.file" = "/s" }
[ingest]
max_revision_mb = inf
[storage]
database = "postgresql+psycopg://me@host/db"
"""
    config = parse_settings("\ufeff".encode() + text.encode(), "x")
    assert config.spark.conf["spark.sql.shuffle.partitions"] == "4"
    assert [edge.relation for edge in config.motif_patterns()["m"][0].edges] == [
        "-> where `my col` in (1, 2-3, 4) and tag = 'x, a-b  c'",
        "- where größe > 0",
    ]


def test_a_name_that_needs_quotes() -> None:
    with pytest.raises(UsageError, match='Write the name in quotes: "größe" = …'):
        parse_settings('[values]\ngröße = "long"\n', "altneu.toml")


def test_a_file_that_is_no_text() -> None:
    with pytest.raises(UsageError, match="is not UTF-8"):
        parse_settings(b"[edges]\nwhere = '\xff'", "altneu.toml")


def test_names_that_toml_has_in_quotes(tmp_path: Path) -> None:
    Home.open(tmp_path / "new", create=True).declare_settings(values={"my col": "long", "größe": "double"})
    assert Home.open(tmp_path / "new").config.values == {"my col": "long", "größe": "double"}


def test_an_epoch_beyond_the_calendar_is_no_batch_and_has_a_name(tmp_path: Path) -> None:
    home = Home.open(tmp_path / "home", create=True).declare_settings(epochs={"every": "1d"})
    beyond = 12_523_620  # milliseconds taken for seconds: the year 36258
    for epoch in (12_523, beyond):
        (home.landing / f"epoch={epoch}").mkdir(parents=True)
        (home.landing / f"epoch={epoch}" / "a.csv").write_text("src,dst\n1,2\n")
    found = landing.list_batches(home)
    assert found[12_523].incomplete is None and "beyond the years" in (found[beyond].incomplete or "")
    assert home.schedule.format_label(beyond) == str(beyond) and home.schedule.end_of(beyond) is None


def test_totals_at_all_epochs_are_not_millions_of_rows(tmp_path: Path) -> None:
    """A home that already holds such an epoch is shown, and its pages are written."""
    home = Home.open(tmp_path / "home", create=True).declare_settings(epochs={"every": "1d"})
    ledger = Ledger(home)
    beyond = 12_523_620
    ledger.runs.create("r", 0, epochs=[10, beyond], config=home.config.semantic_settings())
    ledger.outputs.put_batches("r", [StagedBatch(e, "d", 1, 1, 0) for e in (10, beyond)])
    ledger.outputs.put_totals("r", ["edges"], [("edges", 0, 10, 5), ("edges", 0, beyond, 1)])
    ledger.publish_revision("r", 0, frontier=beyond, snapshots={}, digest=home.config.semantic_digest(), mark=None)
    rows = views.select_totals(ledger, all_epochs=True)
    assert [(row["epoch"], row["label"], row["edges"]) for row in rows] == [
        (10, "1970-01-11", 5), (beyond, str(beyond), 6)
    ]  # fmt: skip
    listed = run_query(ledger, Question("totals", all_epochs=True), Engines(home, lambda: pytest.fail("no Spark")))
    assert listed.notes == ("2 of 12,523,611 epochs: those that landed or changed something",)
    assert run_query(ledger, Question("totals"), Engines(home, lambda: pytest.fail("no Spark"))).notes == ()
    assert any(page.name == "index.html" for page in write(ledger, [10, beyond]))
    assert {row["epoch"] for row in list_epoch_rows(ledger)[1]} == {10, beyond}
