"""The key of what a local Airflow encrypts: one for all its parts, and the same after a restart."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from altneu.pipeline.home.home import Home

pytestmark = pytest.mark.needs("airflow")


def test_all_parts_have_one_key_and_keep_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from cryptography.fernet import Fernet

    from altneu.pipeline.local import airflow

    for name in ("AIRFLOW_HOME", airflow.KEY):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "altneu.toml").write_text("")
    home, now = Home.open(tmp_path), datetime.now(UTC)
    first = airflow.airflow_environment(home, 8080, now)
    Fernet(first[airflow.KEY])
    airflow._keep_environment(home, first)
    assert airflow.airflow_environment(home, 8080, now)[airflow.KEY] == first[airflow.KEY]

    airflow._kept_environment(
        home
    ).unlink()  # one that a version before this has started: its own key is in its configuration
    (tmp_path / "airflow" / "airflow.cfg").write_text("")
    assert airflow.KEY not in airflow.airflow_environment(home, 8080, now)
