"""Changes of branches and tags in a table's metadata file, as Iceberg's specification has it (format versions 1 to 3).

A change is a list of steps with the names of Iceberg's Java API, which are executed in order. Nothing but the names of
snapshots changes, so that neither Iceberg nor the rows are needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Metadata = dict[str, Any]  # a table's metadata file
Step = tuple[str, Any, Any] | tuple[str, Any]  # ("createBranch", name, snapshot), ("removeBranch", name), …
KINDS = {"createBranch": "branch", "replaceBranch": "branch", "createTag": "tag"}
KEPT_FILES = "write.metadata.previous-versions-max"  # the property that says how many metadata files a table keeps


def change_refs(metadata: Metadata, location: str, steps: Sequence[Step], now_ms: int) -> Metadata:
    """Return the metadata of a table after a change of its branches and tags.

    Args:
        metadata: The metadata before.
        location: Its file, which the new metadata names as the one before.
        steps: The change.
        now_ms: The time of the change, in milliseconds. A clock that was set back does not count.

    Raises:
        ValueError: The table has no such snapshot.
    """
    refs, known = dict(metadata.get("refs", {})), {each["snapshot-id"] for each in metadata.get("snapshots", ())}
    for step, name, *snapshot in steps:
        if snapshot and snapshot[0] not in known:
            raise ValueError(f"no snapshot {snapshot[0]} for the {KINDS[step]} {name}")
        refs |= {name: {"snapshot-id": snapshot[0], "type": KINDS[step]}} if snapshot else {}
        if not snapshot:
            refs.pop(name, None)
    before = metadata["last-updated-ms"]
    now = max(now_ms, before)
    kept = max(1, int(metadata.get("properties", {}).get(KEPT_FILES, 100)))
    files = [*metadata.get("metadata-log", ()), {"timestamp-ms": before, "metadata-file": location}]
    new = metadata | {"refs": refs, "last-updated-ms": now, "metadata-log": files[-kept:]}
    main = refs.get("main", {}).get("snapshot-id")
    if main is not None and main != metadata.get("current-snapshot-id"):
        log = [*metadata.get("snapshot-log", ()), {"timestamp-ms": now, "snapshot-id": main}]
        new |= {"current-snapshot-id": main, "snapshot-log": log}
    return new
