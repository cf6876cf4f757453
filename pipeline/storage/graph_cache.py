"""The graphs that runs keep for the next run, in `warm/` of the home: a cache, never the record.

A run's truss stage leaves the maintained graph in files (`algorithms.compile_kernels.persistent_graph`) and their name
in the ledger, as a fact of that stage; the run that builds on it asks there. So no name is used twice: what an attempt
has left that was taken for dead is never read. A rollback has left what the run has of the revision that it publishes
again. Without the files everything works from the tables, more slowly. The newest two are kept, so that a failed run
can be run again, and the newest revision be taken back; whoever copies or moves a home may leave `warm/` behind.
"""

from __future__ import annotations

import contextlib
import secrets
from pathlib import Path
from typing import TYPE_CHECKING

from ..home.home import Home
from ..state.ledger import Ledger
from ..state.records import Revision
from ..state.revisions import republished_revision
from ..state.stage_results import SavedCheckpoint, TrussFacts

if TYPE_CHECKING:
    from algorithms.graph_cache_task import GraphCacheLocation


def cache_folder(home: Home) -> Path:
    return home.path / "warm"


def cache_location(home: Home) -> GraphCacheLocation | None:
    """Where tasks find and leave graphs; None when there is no room even for a word."""
    from algorithms.graph_cache_task import GraphCacheLocation

    with contextlib.suppress(OSError):
        cache_folder(home).mkdir(exist_ok=True)
        token = secrets.token_hex(8)
        here = cache_folder(home) / "here"
        if here.exists() and (known := here.read_text()):
            return GraphCacheLocation(cache_folder(home), known)
        here.write_text(token)
        return GraphCacheLocation(cache_folder(home), token)
    return None


def new_key(run_id: str) -> str:
    return f"{run_id}-{secrets.token_hex(4)}"


def cached_graph_key(ledger: Ledger, revision: Revision) -> str | None:
    """The name of the graph that a revision's run has left, if it has."""
    found = _truss_facts(ledger, revision)
    return None if found is None else found.graph


def saved_checkpoint(ledger: Ledger, revision: Revision) -> SavedCheckpoint | None:
    """The state that it has left in a table (`certificates`) where no task can hold the graph, if it has."""
    found = _truss_facts(ledger, revision)
    return None if found is None else found.certified


def producing_run(ledger: Ledger, revision: Revision) -> str:
    """The run that has left what there is of a revision: after a rollback, of the one that it publishes again."""
    while again := republished_revision(revision):
        revision = ledger.get_revision(again)
    return revision.run_id


def _truss_facts(ledger: Ledger, revision: Revision) -> TrussFacts | None:
    done = ledger.list_stages(producing_run(ledger, revision)) if revision.frontier is not None else ()
    return next((row.facts for row in done if isinstance(row.facts, TrussFacts)), None)


def cached_epoch(home: Home, key: str) -> int | None:
    """The epoch that a kept graph is as of; None when it is not there."""
    from algorithms.kernels.array_store import read_manifest

    said = read_manifest(cache_folder(home), key)
    return None if said is None else int(said["at"])


def cached_edge_count(home: Home, key: str) -> int:
    """How many edges it has; 0 when it is not there."""
    from algorithms.kernels.array_store import read_manifest

    said = read_manifest(cache_folder(home), key)
    return 0 if said is None else int(said["edges"])


def drop_other_graphs(home: Home, *keys: str | None) -> None:
    """Drop all others."""
    from algorithms.kernels.array_store import sweep_folder

    with contextlib.suppress(OSError):
        sweep_folder(cache_folder(home), ["here", *(key for key in keys if key)])
