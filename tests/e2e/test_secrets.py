"""A real PostgreSQL that asks for a password: where it is said, and which rights are enough."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import sqlalchemy as sa

from tests import home_helpers, postgres
from tests.docs.pages import blocks, read

REPO = Path(__file__).resolve().parents[2]
MARK = f"mark{uuid.uuid4().hex}"  # is in every secret of these tests
pytestmark = pytest.mark.backend("postgresql")


@pytest.fixture(scope="module")
def locked() -> Iterator[str]:
    """A server that asks for the password `MARK`; its URI, which does not have it."""
    with pytest.MonkeyPatch.context() as patch, postgres.running(MARK) as server:
        patch.setenv("PGPASSWORD", MARK)
        yield server.uri


def done(home: Path, *arguments: str, environment: dict[str, str]) -> tuple[int, str, set[str]]:
    """How a command ended, what it said, and the command lines of its processes, which everybody may read."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "AWS", "ALTNEU"))}
    command = [sys.executable, "-m", "altneu.pipeline.cli", "--home", str(home), *arguments]
    lines: set[str] = set()
    with (home.parent / "said").open("w+") as said:
        environment = kept | {"PYTHONPATH": str(REPO)} | environment
        process = psutil.Popen(command, env=environment, stdout=said, stderr=subprocess.STDOUT)
        while process.poll() is None:
            with contextlib.suppress(psutil.Error, subprocess.TimeoutExpired):
                lines |= {" ".join(child.cmdline()) for child in process.children(recursive=True)}
                process.wait(0.3)
        said.seek(0)
        return process.returncode, said.read(), lines


def executed(uri: str, statements: str) -> None:
    """Each by itself: a database is made outside of transactions."""
    engine = sa.create_engine(uri, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        for statement in re.split(r";[^\n]*\n", statements):
            if statement.strip():
                connection.execute(sa.text(statement))
    engine.dispose()


def test_the_rights_that_the_page_names_are_enough(locked: str, tmp_path: Path) -> None:
    """The statements of docs/security.md: who owns the database writes, and a reader reads and cannot write."""
    (block,) = [each.text for each in blocks(read("docs/security.md")) if each.language == "sql"]
    before, after = block.replace("altneu", "graph").split("-- in the database graph, as graph:\n")
    passwords = "".join(f"ALTER ROLE {name} PASSWORD '{MARK}';\n" for name in ("graph", "graph_reader"))
    executed(f"{locked}/postgres", before + passwords)
    uri = locked.replace("altneu@", "{}@") + "/graph"
    file = tmp_path / "edges.csv"
    file.write_text("1,2\n2,3\n")
    writer, reader = tmp_path / "writer", tmp_path / "reader"
    for home, user in ((writer, "graph"), (reader, "graph_reader")):
        home.mkdir()
        (home / "altneu.toml").write_text(f'[storage]\ndatabase = "{uri.format(user)}"\n')
    environment = {"PGPASSWORD": MARK}
    land = ["land", str(file), "--columns", "src,dst", "--epoch", "1"]
    assert done(writer, *land, environment=environment)[0] == 0
    executed(uri.format("graph"), after)
    code, said, _ = done(reader, "status", environment=environment)
    assert code == 0, said
    engine = sa.create_engine(uri.format("graph_reader"))
    with engine.connect() as connection, pytest.raises(sa.exc.ProgrammingError, match="permission denied"):
        connection.execute(sa.text("DELETE FROM runs"))
    engine.dispose()


def test_a_database_asks_for_a_password(locked: str, tmp_path: Path) -> None:
    """None, a wrong one, and the right one: without Spark."""
    home, _ = home_helpers.make(tmp_path / "home", f'[storage]\ndatabase = "{postgres.database(locked)}"\n')
    for environment, code, words in (
        ({"PGPASSFILE": str(tmp_path / "none")}, 1, "no password supplied"),
        ({"PGPASSWORD": "another"}, 1, "password authentication failed"),
        ({"PGPASSWORD": MARK}, 0, "nothing"),
    ):
        ended, said, _ = done(home.path, "status", environment=environment)
        assert ended == code and words in said and MARK not in said, said[-3000:]
