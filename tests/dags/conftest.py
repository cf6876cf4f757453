"""An Airflow of the tests' own: a fresh SQLite database in a temporary AIRFLOW_HOME, made once, when a test
asks for it.

Airflow reads its settings when it is first imported, so the environment is set here, before any test module
is.
"""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from altneu.pipeline.scheduling.dag_paths import dags_folder, plugins_folder

REPO = Path(__file__).resolve().parents[2]
DAGS = dags_folder()
PLUGINS = plugins_folder()
AIRFLOW_HOME = Path(tempfile.mkdtemp(prefix="altneu-airflow-"))
atexit.register(shutil.rmtree, AIRFLOW_HOME, ignore_errors=True)

ENVIRONMENT = {
    "AIRFLOW_HOME": str(AIRFLOW_HOME),
    "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    "AIRFLOW__CORE__DAGS_FOLDER": str(DAGS),
    "AIRFLOW__CORE__PLUGINS_FOLDER": str(PLUGINS),
    "AIRFLOW__CORE__UNIT_TEST_MODE": "False",
    "AIRFLOW__LOGGING__LOGGING_LEVEL": "WARNING",
    "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{AIRFLOW_HOME / 'airflow.db'}",
}
os.environ.update(ENVIRONMENT)


@pytest.fixture(scope="session")
def airflow() -> None:
    """The database, and the pool that publish waits for."""
    from airflow.models.pool import Pool
    from airflow.utils import db

    from altneu.pipeline.tasks.base import POOL

    db.initdb()
    Pool.create_or_update_pool(POOL, slots=1, description="", include_deferred=False)


def use_bag(patch: pytest.MonkeyPatch, bag: Any) -> None:
    """Let `DAG.test` take these DAGs, and write them to the database once: it parses all of them before each run."""
    from airflow.dag_processing import dagbag

    write, written = dagbag.sync_bag_to_db, list[None]()

    def write_once(*arguments: Any, **options: Any) -> None:
        if not written:
            written.append(write(*arguments, **options))

    patch.setattr(dagbag, "BundleDagBag", lambda **_: bag)
    patch.setattr(dagbag, "sync_bag_to_db", write_once)


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., dict[str, Any]]]:
    """`load(home, **environment)`: the DAGs as parsed for a home."""

    def forget() -> None:
        ours = "altneu.pipeline.scheduling"
        for name in [name for name in sys.modules if name == ours or name.startswith(f"{ours}.")]:
            del sys.modules[name]

    patch = pytest.MonkeyPatch()

    def loaded(home: Path | str, **environment: str) -> dict[str, Any]:
        from airflow.dag_processing import dagbag

        patch.undo()
        for name, value in {"ALTNEU_HOME": str(home), **environment}.items():
            monkeypatch.setenv(name, value)
        forget()
        bag = dagbag.BundleDagBag(dag_folder=DAGS, bundle_path=DAGS, bundle_name="dags-folder")
        assert not bag.import_errors, "\n".join(bag.import_errors.values())
        use_bag(patch, bag)
        for dag in bag.dags.values():  # a failure shows at once
            for task in dag.tasks:
                task.retries = 0
        return dict(bag.dags)

    yield loaded
    patch.undo()
    forget()
