"""A home in PostgreSQL: its identity is that of the database, by whatever URI it is reached."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest
import sqlalchemy as sa

from altneu.pipeline.errors import UsageError
from altneu.pipeline.home.home import Home
from altneu.pipeline.reading.views import select_totals
from altneu.pipeline.state import home_identity
from altneu.pipeline.state.ledger import Ledger
from altneu.pipeline.storage.relocate import relocate_home
from tests import home_helpers


def on(path: Path, uri: sa.URL | str) -> Home:
    text = uri if isinstance(uri, str) else uri.render_as_string(hide_password=False)
    path.mkdir(exist_ok=True)
    (path / "altneu.toml").write_text(f'[storage]\ndatabase = "{text}"\n')
    return Home.open(path)


def spellings(uri: str) -> dict[str, sa.URL]:
    url = sa.make_url(uri)
    return {
        "user": url.set(username="postgres2"),
        "host": url.set(host="localhost"),
        "options": url.update_query_dict({"sslmode": "prefer", "application_name": "altneu"}),
    }


@pytest.fixture
def other_user(postgres: str) -> None:
    engine = sa.create_engine(postgres, isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
    with engine.connect() as connection:
        if not connection.execute(sa.text("SELECT 1 FROM pg_roles WHERE rolname = 'postgres2'")).scalar():
            connection.execute(sa.text("CREATE ROLE postgres2 SUPERUSER LOGIN"))


@pytest.mark.usefixtures("other_user")
def test_credentials_hosts_and_options_are_no_part_of_the_identity(tmp_path: Path, postgres: str) -> None:
    name = home_identity.require_identity(on(tmp_path / "home", postgres)).catalog
    for what, url in spellings(postgres).items():
        assert home_identity.require_identity(on(tmp_path / "home", url)).catalog == name, what


def _claimed(path: str) -> str:
    return home_identity.claim_identity(Home.open(path)).catalog


def test_processes_that_come_together_get_one_identity(tmp_path: Path, postgres: str) -> None:
    home = on(tmp_path / "home", postgres)
    with ProcessPoolExecutor(3, get_context("spawn")) as pool:
        found = list(pool.map(_claimed, [str(home.path)] * 12))
    assert len(set(found)) == 1 and found[0] == home_identity.require_identity(home).catalog


def test_a_server_that_does_not_say_which_it_is(tmp_path: Path, postgres: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The right to ask may come and go: neither is a move."""
    home = on(tmp_path / "home", postgres)
    with monkeypatch.context() as patched:
        patched.setattr(home_identity, "database_place", lambda connection: home_identity.UNTOLD)
        name = home_identity.require_identity(home).catalog
    assert home_identity.require_identity(home).catalog == name
    relocate_home(home, original_gone=True)
    engine = sa.create_engine(postgres, poolclass=sa.NullPool)
    with engine.connect() as connection:
        assert home_identity.database_place(connection).startswith("postgresql:")


def test_a_copy_does_not_take_the_database_of_the_original(tmp_path: Path, postgres: str) -> None:
    home = on(tmp_path / "home", postgres)
    name = home_identity.require_identity(home).catalog
    table = tmp_path / "home" / "warehouse" / "graph" / "edges" / "metadata"
    table.mkdir(parents=True)
    (table / "00000-a.metadata.json").write_text("{}")
    copy = on(tmp_path / "copy", postgres)
    with pytest.raises(home_identity.HomeMoved):
        home_identity.open_ledger(copy)
    with pytest.raises(UsageError, match="a copy needs a database of its own"):
        relocate_home(copy)
    assert home_identity.require_identity(home).catalog == name


def test_a_restored_database_asks_before_it_takes_the_tables(tmp_path: Path, postgres: str) -> None:
    """A dump of the database, restored under another name: it finds the same tables."""
    toml = f'[storage]\ndatabase = "%s"\nwarehouse = "{tmp_path / "tables"}"\n'
    home = home_helpers.make(tmp_path / "home", toml % postgres)[0]
    home_identity.claim_identity(home)
    url = sa.make_url(postgres)
    engine = sa.create_engine(url.set(database="postgres"), isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
    with engine.connect() as connection:
        connection.execute(sa.text(f"CREATE DATABASE {url.database}_2 TEMPLATE {url.database}"))
    again = url.set(database=f"{url.database}_2").render_as_string(hide_password=False)
    home = home_helpers.make(tmp_path / "home", toml % again)[0]
    with pytest.raises(home_identity.HomeMoved, match="Two databases on the same tables"):
        home_identity.open_ledger(home)
    relocate_home(home, original_gone=True)
    assert home_identity.open_ledger(home).revisions.get().revision == 0


@pytest.mark.slow
@pytest.mark.usefixtures("tiny", "other_user")
def test_runs_go_on_when_credentials_change(tmp_path: Path, postgres: str) -> None:
    triangle = [(1, 2, None, "upsert", 0), (1, 3, None, "upsert", 0), (2, 3, None, "upsert", 0)]
    urls = [sa.make_url(postgres), *spellings(postgres).values()]
    for epoch, url in enumerate(urls):
        home = on(tmp_path / "home", url)
        home_helpers.put(home, epoch, [(a + epoch, b + epoch, *rest) for a, b, *rest in triangle])
        home_helpers.run(Ledger(home), [epoch])
    found = select_totals(Ledger(home), all_epochs=True)
    assert [row["triangles"] for row in found] == [*range(1, len(urls) + 1)]
