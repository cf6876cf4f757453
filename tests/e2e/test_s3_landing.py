"""Runs from a landing in S3, on a real server that stumbles: the same as from a folder."""

from __future__ import annotations

import gzip
import io
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from altneu.pipeline import landing
from altneu.pipeline.errors import Unavailable
from altneu.pipeline.home.home import Home
from altneu.pipeline.landing.epoch_states import compare_with_ledger
from altneu.pipeline.reading import views
from altneu.pipeline.state import filesystem
from altneu.pipeline.state.ledger import Ledger
from altneu.pipeline.state.stage_results import IngestFacts
from tests import home_helpers, seeds
from tests.s3 import Store


def parquet() -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table({"src": [1, 2, 5], "dst": [4, 4, 1]}), sink)
    return sink.getvalue()


FILES = {
    "epoch=1/a.csv": b"src,dst\n" + b"1,2\n" * 20 + b"1,3\nx,3\n2,3\n",
    "epoch=2/a.csv.gz": gzip.compress(b"src,dst\n" + b"3,4\n2,4\n" * 2_000, mtime=0),
    "epoch=2/b.jsonl": b'{"src": 2, "dst": 5}\n{"src": 1, "dst": 2, "op": "delete"}\n',
    "epoch=3/c.parquet": parquet(),
}


@pytest.mark.usefixtures("unaudited", "tiny")
def test_the_same_as_from_a_folder(spark: SparkSession, tmp_path: Path, s3: str, store: Store) -> None:
    homes_ = [home_helpers.make(tmp_path / "folder"), home_helpers.make(tmp_path / "s3", f'[landing]\nuri = "{s3}"\n')]
    for name, content in FILES.items():
        place = homes_[0][0].landing / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
        filesystem.write_file(f"{s3}/{name}", content)
    for epoch in (1, 2, 3):
        filesystem.write_file(f"{s3}/epoch={epoch}/_SUCCESS", b"")
    dice = random.Random(seeds.one())

    def faults(method: str, path: str) -> str | None:
        return dice.choices(
            [None, "503", "cut", "half" if ".csv" in path or ".jsonl" in path else None], [85, 5, 5, 5]
        )[0]

    store.faults = faults
    raw = tmp_path / "raw.csv"
    raw.write_text("src,dst\n1,2\n1,3\n1,5\n")
    seen = []
    for home, ledger in homes_:
        home_helpers.run(ledger, [1, 2, 3])
        landing.land(home, [raw], landing.LandOptions(epoch=1))
        first = home_helpers.run(ledger, [1])
        raw_again = "src,dst\n1,2\n1,5\n"  # one row less, in another file of the store under the name of before
        raw.write_text(raw_again)
        landing.land(home, [raw], landing.LandOptions(epoch=1))
        second = home_helpers.run(ledger, [1])
        raw.write_text("src,dst\n1,2\n1,3\n1,5\n")
        assert first and second
        assert [entry.state for entry in compare_with_ledger(ledger)[1].values()] == ["published"] * 3
        ingests = [ledger.stages.get_facts(row.run_id, IngestFacts) for row in (first, second)]
        facts = [(each.rows, each.quarantined, each.changed_rows, each.rows_before) for each in ingests]
        totals = views.select_totals(ledger, all_epochs=True)
        digests = {epoch: batch.digest for epoch, batch in ledger.outputs.published_batches().items()}
        seen.append((facts, totals, digests, ledger.outputs.fingerprints_of(second.revision)))
    assert seen[0] == seen[1]


@pytest.mark.usefixtures("unaudited", "tiny")
def test_a_store_that_fails_while_it_is_read(spark: SparkSession, tmp_path: Path, s3: str, store: Store) -> None:
    """Nothing is published, and the same run may succeed later."""
    home, ledger = home_helpers.make(tmp_path / "home", f'[landing]\nuri = "{s3}"\n')
    assert Home.open(home.path).landed_remotely
    filesystem.write_file(f"{s3}/epoch=1/a.csv", FILES["epoch=1/a.csv"])
    filesystem.write_file(f"{s3}/epoch=1/_SUCCESS", b"")
    landing.digest_batches(ledger, landing.list_batches(home).values())
    store.faults = lambda method, path: "503" if ".csv" in path and method == "GET" else None
    with pytest.raises(Unavailable, match="the object store does not return it"):
        home_helpers.run(ledger, [1])
    assert Ledger(home).revisions.get().revision == 0
    store.faults = lambda method, path: None
    home_helpers.run(ledger, [1])
    assert ledger.revisions.get().revision == 1
