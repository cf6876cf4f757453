"""A random history of commands, by one daemon and by processes: the same codes, output and tables."""

from __future__ import annotations

import random
import re
import shutil
from pathlib import Path

import pytest

from tests import seeds
from tests.daemon_places import Place

from .test_shared_jvm import seeded, served  # noqa: F401  # fixtures

VIEWS = ("totals", "edges", "vertices", "checks")
LABEL = "{epoch}"
# What needs no Spark comes more often, as it does for people; each word list is drawn with the same chance.
QUICK = [
    ["status", "--format", "json"],
    ["plan"],
    ["show", "totals", "--all-epochs", "--format", "csv"],
    ["show", "edges", "--format", "json"],
    ["show", "vertices", "--top", "3", "--sort", "triangles"],
    ["explain", "edge", "1", "2"],
    ["tables"],
    ["incidents"],
    ["report", LABEL],
    ["land", "edges.csv", "--columns", "src,dst", "--epoch", LABEL],
    ["land", "missing.csv", "--columns", "src,dst", "--epoch", LABEL],
    ["show", "nothing"],
    ["run", "no-epoch"],
]
WITH_SPARK = [
    ["run", LABEL],
    ["run", LABEL, "--again"],
    ["backfill", "--all"],
    ["backfill", "--all", "--hold"],
    ["publish"],
    ["discard"],
    ["audit"],
    ["rebuild"],
    ["compact"],
]
# What differs between any two runs of a command: names of runs, homes, files; moments, seconds, sizes, digests.
MASKS = (
    (r"\d{8}T\d{6}_[0-9a-f]{8}", "RUN"),
    (r"altneu_[0-9a-f]{12}", "CATALOG"),
    (r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "FILE"),
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d[0-9:.+Z]*", "MOMENT"),
    (r"\b\d+(\.\d+)? (s|min|h|B|kB|KB|MB)\b", "AMOUNT"),
    (r'("(\w*seconds|\w*bytes|daemon|snapshot\w*|size)": )[^,\n]*', r"\1…"),
    (r"\b\d{15,}\b", "SNAPSHOT"),
)


def mask(text: str, place: Place) -> str:
    """What a command says without what differs between any two runs of it."""
    text = re.sub(r'"daemon": \{(.|\n)*?\n \}', '"daemon": null', text).replace(str(place.path), "HOME")
    for pattern, word in MASKS:
        text = re.sub(pattern, word, text)
    return re.sub(r"[ \t]+", " ", text)  # the width of a column follows its values


def draw_command(draw: random.Random, spark_share: float) -> list[str]:
    """Draw a command, with a label of one of the landed days or the day after."""
    words = draw.choice(WITH_SPARK if draw.random() < spark_share else QUICK)
    return [word if word != LABEL else f"1970-01-0{draw.randrange(1, 8)}" for word in words]


def write_edges(places: list[Place], draw: random.Random) -> None:
    """Write the same new file of edges, which a command may land, into each home."""
    rows = {tuple(sorted(draw.sample(range(7), 2))) for _ in range(draw.randrange(1, 9))}
    for place in places:
        (place.path / "edges.csv").write_text("src,dst\n" + "".join(f"{a},{b}\n" for a, b in sorted(rows)))


@pytest.mark.slow  # test_daemon.py and test_shared_jvm.py compare commands and have a run by daemon in the default tier
@pytest.mark.parametrize(
    ("commands", "spark_share"),
    [pytest.param(8, 0.25, id="8"), pytest.param(200, 0.4, id="200")],
)
def test_one_daemon_does_what_processes_do(
    served: Place,  # noqa: F811
    seeded: Path,  # noqa: F811
    tmp_path: Path,
    commands: int,
    spark_share: float,
) -> None:
    alone = Place(tmp_path / "alone" / "home", served.environment)
    shutil.copytree(seeded, alone.path)
    for mark in (alone.path / "landing").glob("*/_SUCCESS"):
        mark.touch()
    draw, places, history = random.Random(seeds.one()), [served, alone], list[list[str]]()
    for _ in range(commands):
        write_edges(places, draw)
        words = draw_command(draw, spark_share)
        history.append(words)
        (code, out, err), (own_code, own_out, own_err) = (place.run(*words) for place in places)
        assert code == own_code, (history, err, own_err)
        assert mask(out, served) == mask(own_out, alone), history
    for view in VIEWS:
        by_daemon, by_process = (place.run("show", view, "--format", "csv") for place in places)
        assert by_daemon[0] == by_process[0]
        assert mask(by_daemon[1], served) == mask(by_process[1], alone), (history, view)
