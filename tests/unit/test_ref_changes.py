"""Changes of branches and tags in metadata files, against pyiceberg, which changes them by a code of its own."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from altneu.pipeline.storage.ref_changes import KEPT_FILES, KINDS, Metadata, Step, change_refs
from tests import seeds

SNAPSHOTS = (11, 12, 13)


def make_metadata(kept: int) -> Metadata:
    schema = {"type": "struct", "schema-id": 0, "fields": [{"id": 1, "name": "a", "type": "long", "required": False}]}
    snapshot = {"timestamp-ms": 1000, "manifest-list": "/t/list.avro", "summary": {"operation": "append"}}
    return {
        "format-version": 2,
        "table-uuid": "8c2f4d4e-0000-4000-8000-000000000000",
        "location": "/t",
        "last-sequence-number": 3,
        "last-updated-ms": 1000,
        "last-column-id": 1,
        "current-schema-id": 0,
        "schemas": [schema],
        "default-spec-id": 0,
        "partition-specs": [{"spec-id": 0, "fields": []}],
        "last-partition-id": 999,
        "default-sort-order-id": 0,
        "sort-orders": [{"order-id": 0, "fields": []}],
        "properties": {KEPT_FILES: str(kept)},
        "current-snapshot-id": 11,
        "refs": {"main": {"snapshot-id": 11, "type": "branch"}},
        "snapshots": [snapshot | {"snapshot-id": each, "sequence-number": each - 10} for each in SNAPSHOTS],
        "snapshot-log": [{"timestamp-ms": 1000, "snapshot-id": 11}],
        "metadata-log": [],
    }


def change_by_pyiceberg(metadata: Metadata, location: str, steps: list[Step]) -> Metadata:
    from pyiceberg.table.metadata import TableMetadataUtil
    from pyiceberg.table.update import RemoveSnapshotRefUpdate, SetSnapshotRefUpdate, update_table_metadata

    updates = [
        SetSnapshotRefUpdate.model_validate({"ref-name": name, "type": KINDS[step], "snapshot-id": snapshot[0]})
        if snapshot
        else RemoveSnapshotRefUpdate.model_validate({"ref-name": name})
        for step, name, *snapshot in steps
    ]
    before = TableMetadataUtil.parse_raw(json.dumps(metadata))
    after = update_table_metadata(before, tuple(updates), metadata_location=location)
    changed: Metadata = json.loads(after.model_dump_json())
    return changed


def read_meaning(metadata: Metadata) -> dict[str, Any]:
    """What of the metadata has to be equal: without the times of changes, and whatever says nothing."""
    meaning = {name: metadata.get(name) for name in ("refs", "current-snapshot-id", "snapshots", "location")}
    meaning["snapshot-log"] = [each["snapshot-id"] for each in metadata["snapshot-log"]]
    return meaning | {"metadata-log": [each["metadata-file"] for each in metadata["metadata-log"]]}


@pytest.mark.parametrize("kept", [1, 2, 5])
def test_a_history_of_changes_is_that_of_pyiceberg(kept: int) -> None:
    seed = seeds.one()
    rng = random.Random(seed)
    metadata = reference = make_metadata(kept)
    for number in range(12):
        branches = [name for name, ref in metadata["refs"].items() if ref["type"] == "branch" and name != "main"]
        main = metadata["current-snapshot-id"]
        steps: list[Step] = [
            ("createTag", f"r{number}", rng.choice(SNAPSHOTS)),
            ("createBranch", f"run{number}", rng.choice(SNAPSHOTS)),
            ("replaceBranch", "main", rng.choice([each for each in SNAPSHOTS if each != main])),
            *[("removeBranch", name) for name in branches[:1]],
        ]
        steps = rng.sample(steps, rng.randrange(1, len(steps) + 1))
        metadata = change_refs(metadata, f"/t/metadata/{number}.metadata.json", steps, 2000 + number)
        reference = change_by_pyiceberg(reference, f"/t/metadata/{number}.metadata.json", steps)
        assert read_meaning(metadata) == read_meaning(reference), f"seed {seed}, change {number}: {steps}"


def test_a_clock_that_was_set_back_does_not_count() -> None:
    after = change_refs(make_metadata(5), "/t/metadata/0.metadata.json", [("replaceBranch", "main", 12)], 7)
    assert after["last-updated-ms"] == after["snapshot-log"][-1]["timestamp-ms"] == 1000


def test_a_missing_snapshot_is_refused() -> None:
    with pytest.raises(ValueError, match="no snapshot 99 for the tag r1"):
        change_refs(make_metadata(5), "/t/metadata/0.metadata.json", [("createTag", "r1", 99)], 2000)
