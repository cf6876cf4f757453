"""The graph cache: the graphs that runs leave for the next run in `warm/` of the home. It holds no state of the home.

The truss stage of a run writes the maintained graph to files (`altneu.algorithms.graph.kernels.persistent_graph`) and
records their key in its facts, where the run that builds on it finds the key. No key is used twice, so the graph of an
attempt that counted as dead is never read. After a rollback the graph is that of the revision that it publishes again.
Without the files runs work from the tables, more slowly. The newest two graphs are kept, so that a failed run can be
repeated, and the newest revision can be rolled back. A copy of a home does not need `warm/`.
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
    from altneu.algorithms.graph.graph_cache_task import GraphCacheLocation


def cache_folder(home: Home) -> Path:
    return home.path / "warm"


def cache_location(home: Home) -> GraphCacheLocation | None:
    """Return the place where tasks read and write graphs; None: the folder cannot be written."""
    from altneu.algorithms.graph.graph_cache_task import GraphCacheLocation

    with contextlib.suppress(OSError):
        cache_folder(home).mkdir(exist_ok=True)
        token = secrets.token_hex(8)
        token_file = cache_folder(home) / "here"
        if token_file.exists() and (known := token_file.read_text()):
            return GraphCacheLocation(cache_folder(home), known)
        token_file.write_text(token)
        return GraphCacheLocation(cache_folder(home), token)
    return None


def new_key(run_id: str) -> str:
    return f"{run_id}-{secrets.token_hex(4)}"


def cached_graph_key(ledger: Ledger, revision: Revision) -> str | None:
    """Return the key of the graph that the run of a revision has left, or None."""
    facts = _truss_facts(ledger, revision)
    return None if facts is None else facts.graph


def saved_checkpoint(ledger: Ledger, revision: Revision) -> SavedCheckpoint | None:
    """Return the truss checkpoint that the run of a revision has left (`truss_checkpoint_table`), or None."""
    facts = _truss_facts(ledger, revision)
    return None if facts is None else facts.certified


def producing_run(ledger: Ledger, revision: Revision) -> str:
    """Return the run that produced a revision; after a rollback, the run of the revision that it publishes again."""
    while again := republished_revision(revision):
        revision = ledger.revisions.get(again)
    return revision.run_id


def _truss_facts(ledger: Ledger, revision: Revision) -> TrussFacts | None:
    done = ledger.stages.select(producing_run(ledger, revision)) if revision.frontier is not None else ()
    return next((row.facts for row in done if isinstance(row.facts, TrussFacts)), None)


def cached_epoch(home: Home, key: str) -> int | None:
    """Return the epoch of a graph in the cache; None: it does not exist."""
    from altneu.algorithms.graph.kernels.array_store import read_manifest

    manifest = read_manifest(cache_folder(home), key)
    return None if manifest is None else int(manifest["at"])


def cached_edge_count(home: Home, key: str) -> int:
    """Return the number of edges of a graph in the cache; 0: it does not exist."""
    from altneu.algorithms.graph.kernels.array_store import read_manifest

    manifest = read_manifest(cache_folder(home), key)
    return 0 if manifest is None else int(manifest["edges"])


def drop_other_graphs(home: Home, *keys: str | None) -> None:
    """Delete all graphs of the cache but those with these keys."""
    from altneu.algorithms.graph.kernels.array_store import sweep_folder

    with contextlib.suppress(OSError):
        sweep_folder(cache_folder(home), ["here", *(key for key in keys if key)])
