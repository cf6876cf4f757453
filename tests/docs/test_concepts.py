"""The example of docs/concepts.md: its tables are what the plain reference computes of its files."""

from __future__ import annotations

import csv
import re
from itertools import product

import pytest

from tests import reference
from tests.docs.pages import blocks, read, table

PAGE = read("docs/concepts.md")
Data = tuple[int, ...]
Triples = dict[tuple[Data, int, int], int]  # (data, epoch, revision) → diff
EPOCHS = (1, 2, 3)


def landed() -> list[tuple[int, list[reference.Row]]]:
    """(epoch, its batch) in the order of the page: one revision each."""
    out = []
    for block in blocks(PAGE):
        if block.language.startswith("csv epoch="):
            rows = csv.DictReader(block.text.splitlines())
            epoch = int(block.language.removeprefix("csv epoch=").split()[0])
            out.append((epoch, [(int(r["src"]), int(r["dst"]), None, "upsert", n) for n, r in enumerate(rows)]))
    return out


def histories() -> list[dict[int, list[reference.Row]]]:
    """The batches as they stand at each revision; the first is the empty state."""
    out: list[dict[int, list[reference.Row]]] = [{}]
    for epoch, rows in landed():
        out.append(out[-1] | {epoch: rows})
    return out


def edges(history: dict[int, list[reference.Row]], epoch: int) -> set[Data]:
    return set(reference.edges(history, epoch))


def triangles(history: dict[int, list[reference.Row]], epoch: int) -> set[Data]:
    return set(reference.triangles(reference.edges(history, epoch)))


def told(heading: str) -> Triples:
    """A table of the page as diff triples."""
    return {
        (tuple(map(int, data.split("–"))), int(epoch), int(revision)): int(diff)
        for data, epoch, revision, diff in table(PAGE, heading)
    }


def contents(triples: Triples, epoch: int, revision: int) -> set[Data]:
    """The sum of the diffs at this time and before."""
    sums: dict[Data, int] = {}
    for (data, at, said), diff in triples.items():
        if at <= epoch and said <= revision:
            sums[data] = sums.get(data, 0) + diff
    assert set(sums.values()) <= {0, 1}
    return {data for data, number in sums.items() if number}


def test_there_are_six_edges_three_epochs_and_a_correction() -> None:
    assert [epoch for epoch, _ in landed()] == [1, 2, 3, 2]
    assert len(edges(histories()[3], 3)) == 6


def test_the_picture_of_the_two_times() -> None:
    """■ where the edge 3–4 is there, by the epoch and the revision."""
    (picture,) = (block.text for block in blocks(PAGE) if "when it was true" in block.text)
    rows = [line for line in picture.splitlines() if re.search(r" [■·]", line)]
    for revision, (row, history) in enumerate(zip(rows, histories()[1:], strict=True), 1):
        number, *shown = re.findall(r"\b\d\b(?=  )|[■·]", row)
        there = ["■" if (3, 4) in edges(history, epoch) else "·" for epoch in EPOCHS if epoch <= max(history)]
        assert (int(number), shown) == (revision, there), row


@pytest.mark.parametrize(
    "heading, count", [("Its edges as diff triples", edges), ("Its triangles as diff triples", triangles)]
)
def test_the_diff_triples_add_up_to_the_state_at_every_time_and_are_no_more_than_needed(heading, count) -> None:
    triples, needed = told(heading), {}
    for revision, epoch in product(range(1, 5), EPOCHS):
        state = [count(histories()[r], e) for r in (revision, revision - 1) for e in (epoch, epoch - 1)]
        assert contents(triples, epoch, revision) == state[0], (epoch, revision)
        for data in set().union(*state):
            now, before, then, then_before = (data in each for each in state)
            diff = now - before - then + then_before
            if diff:
                needed[data, epoch, revision] = diff
    assert triples == needed


def test_the_totals() -> None:
    for revision, epoch, vertices, number, found, greatest in [map(int, row) for row in table(PAGE, "Its totals")]:
        sums = reference.totals(reference.edges(histories()[revision], epoch))
        assert [sums[name] for name in ("vertices", "edges", "triangles", "max_trussness")] == [
            vertices,
            number,
            found,
            greatest,
        ], (revision, epoch)
    assert len(table(PAGE, "Its totals")) == 6


def test_the_trussness() -> None:
    columns = [(3, 1), (3, 2), (3, 3), (4, 2), (4, 3)]
    rows = table(PAGE, "Its trussness")
    for at, (revision, epoch) in enumerate(columns, 1):
        shown = {tuple(map(int, row[0].split("–"))): int(row[at]) for row in rows if row[at]}
        assert shown == reference.trussness(reference.edges(histories()[revision], epoch)), (revision, epoch)
