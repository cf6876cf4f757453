"""The commands of docs/backup.md, typed as they stand there."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import sqlalchemy as sa

from altneu.pipeline.home.home import Home
from altneu.pipeline.state import home_identity
from altneu.pipeline.storage.relocate import relocate_home
from tests import home_helpers

REPO = Path(__file__).parents[2]


def blocks(language: str) -> list[str]:
    found = re.findall(rf"^```{language}\n(.*?)^```$", (REPO / "docs" / "backup.md").read_text(), re.M | re.S)
    assert found
    return found


@pytest.fixture
def shell(tmp_path: Path):  # type: ignore[no-untyped-def]
    """Types lines in a shell that has `altneu` and PostgreSQL's programs; what they print."""
    program = tmp_path / "bin" / "altneu"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m altneu.pipeline.cli "$@"\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    servers = [str(path.parent) for path in sorted(Path("/usr/lib/postgresql").glob("*/bin/pg_dump"), reverse=True)]
    path = os.pathsep.join([str(program.parent), *servers, os.environ["PATH"]])

    def run(lines: str, **variables: str) -> str:
        environment = {**os.environ, "PATH": path, "PYTHONPATH": str(REPO), "ALTNEU_HOME": "home", **variables}
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", lines], cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, f"{lines}\n{done.stdout}{done.stderr}"
        return done.stdout

    return run


def test_on_one_machine(tmp_path: Path, shell) -> None:  # type: ignore[no-untyped-def]
    relocate_home(Home.open(home_helpers.old(tmp_path)[0]))
    before = shell("altneu status")
    assert "revision 6" in before
    back_up, put_back, elsewhere = blocks("sh")
    shell(back_up)
    assert shell(put_back) == before
    assert shell(elsewhere).endswith(before)
    names = {home_identity.require_identity(Home.open(tmp_path / name)).catalog for name in ("home", "elsewhere")}
    assert len(names) == 2


def test_in_postgres(tmp_path: Path, shell, postgres: str, postgres_server: str) -> None:  # type: ignore[no-untyped-def]
    toml = '[storage]\ndatabase = "%s"\n'
    home = home_helpers.make(tmp_path / "home", toml % postgres)[0]
    name = home_identity.claim_identity(home).catalog
    dump, restore, restored = blocks("sh pg")
    plain = {"DATABASE": postgres.replace("+psycopg", ""), "SERVER": postgres_server.replace("+psycopg", "")}
    shell(dump, **plain)
    shell(restore, **plain)
    (home.path / "altneu.toml").write_text(toml % f"{postgres_server}/altneu_restored")
    assert "revision 0" in shell(restored, **plain)
    assert home_identity.require_identity(Home.open(home.path)).catalog != name
    assert home_identity.require_identity(home_helpers.make(home.path, toml % postgres)[0]).catalog == name
    engine = sa.create_engine(f"{postgres_server}/postgres", isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
    with engine.connect() as connection:
        connection.execute(sa.text("DROP DATABASE altneu_restored WITH (FORCE)"))
