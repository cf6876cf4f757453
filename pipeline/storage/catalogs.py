"""The Iceberg catalog of a home, which names the current metadata file of each table, and Spark's options for it.

By default it is Iceberg's JDBC catalog, in the home's database beside the ledger. With `[storage] catalog` it is a
server that speaks Iceberg's REST protocol. Iceberg commits to a table through either; the ledger still decides which
snapshots are published. A home keeps the kind of catalog with which its tables were made (`refuse_other_kind`).

The token of a REST catalog comes from the environment: `ALTNEU_CATALOG_TOKEN`, or `ALTNEU_CATALOG_CREDENTIAL`
("client:secret", which OAuth2 exchanges for a token). Source: Iceberg's REST catalog specification.
"""

from __future__ import annotations

import contextlib
import json
import os
import posixpath
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar
from urllib.parse import quote

import sqlalchemy as sa
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from ..errors import AltneuError, Unavailable, UsageError
from ..home.home import Home
from ..home.s3_config import S3, in_s3
from ..home.settings import Rest
from ..home.uris import jdbc_sqlite_uri
from ..secret import read_secret
from ..state import database, filesystem, home_identity
from .ref_changes import KINDS, Step, change_refs
from .table_schemas import NAMESPACE

if TYPE_CHECKING:
    from pyiceberg.catalog.rest import RestCatalog
    from pyiceberg.table.metadata import TableMetadata
T = TypeVar("T")
BUSY_MS = 60_000  # milliseconds that a writer waits for the write lock of another process in SQLite
TRIES = 5  # tries of a request to a REST catalog
OWNER = "altneu.home"  # the property of a table in a REST catalog that names its home
_SECRETS = {"ALTNEU_CATALOG_TOKEN": "token", "ALTNEU_CATALOG_CREDENTIAL": "credential"}
_REMEDY = "see [storage] catalog in altneu.toml; ALTNEU_CATALOG_TOKEN or ALTNEU_CATALOG_CREDENTIAL in the environment"


class Catalog(Protocol):
    """The catalog that lists the tables of one home."""

    def metadata_locations(self, *tables: str) -> dict[str, str]:
        """Return the current metadata files: table → location.

        The result has at least those of `tables` that exist; without `tables`, all. Raises `Unavailable` where the
        catalog does not answer.
        """
        ...

    def commit_steps(self, table: str, location: str, steps: Sequence[Step]) -> bool:
        """Change branches and tags of a table whose metadata file `location` was read. Return False where another
        writer has committed since."""
        ...

    def unregister_table(self, table: str) -> None:
        """Remove a table from the catalog. Its files stay."""
        ...


def open_catalog(home: Home, identity: home_identity.Identity) -> Catalog:
    """Open the catalog of a home. Raises `UsageError` where its tables were made in a catalog of the other kind."""
    refuse_other_kind(home, identity)
    rest = home.config.storage.catalog
    return JdbcCatalog(home.database, identity.catalog) if rest is None else RestCatalogClient(rest)


def refuse_other_kind(home: Home, identity: home_identity.Identity) -> None:
    """Raise `UsageError` where `[storage] catalog` was set or removed after the tables were made."""
    now, then = home.config.storage.catalog is not None, identity.catalog.startswith(home_identity.REST_PREFIX)
    if now != then:
        words = ("in the home's database", "in a REST catalog")
        raise UsageError(
            f"the tables of this home are listed {words[then]}, but by [storage] catalog they are {words[now]}.",
            "restore the setting; to use another catalog, copy the home: altneu move DIR --to …",
        )


def read_metadata(location: str) -> TableMetadata:
    """Read a metadata file. Raises `OSError`."""
    from pyiceberg.table.metadata import TableMetadataUtil

    return TableMetadataUtil.parse_raw(filesystem.read_file(location).decode())


def tag_name(revision: int) -> str:
    """Return the tag by which other programs find the rows of a revision in a table."""
    return f"r{revision}"


def catalog_namespace(home: Home) -> str:
    """Return the namespace of the catalog that contains the tables of a home."""
    rest = home.config.storage.catalog
    return NAMESPACE if rest is None else rest.namespace


class JdbcCatalog:
    """Iceberg's JDBC catalog, used by SQL: one query for all tables."""

    def __init__(self, uri: str, name: str) -> None:
        self._uri, self._name = uri, name
        self._engine = database.acquire_engine(uri, self)

    def metadata_locations(self, *tables: str) -> dict[str, str]:
        with database.translate_errors(self._uri), self._engine.connect() as connection:
            locations = home_identity.list_table_locations(connection, self._name, *tables)
        return {name.rpartition(".")[2]: location for name, location in locations.items()}

    def commit_steps(self, table: str, location: str, steps: Sequence[Step]) -> bool:
        old = json.loads(filesystem.read_file(location))
        new = change_refs(old, location, steps, int(time.time() * 1000))
        version = int(posixpath.basename(location).split("-")[0]) + 1  # as Iceberg counts
        written = f"{old['location']}/metadata/{version:05d}-{uuid.uuid4()}.metadata.json"
        filesystem.write_file(written, json.dumps(new).encode())
        t = home_identity.tables
        change = t.update().where(self._match_table(table) & (t.c.metadata_location == location))
        with database.translate_errors(self._uri), self._engine.begin() as connection:
            values = {"metadata_location": written, "previous_metadata_location": location}
            done = connection.execute(change.values(**values)).rowcount == 1
        kept = {entry["metadata-file"] for entry in new["metadata-log"]}
        for gone in {entry["metadata-file"] for entry in old.get("metadata-log", ())} - kept:
            if done:
                with contextlib.suppress(OSError):
                    filesystem.delete_file(gone)
        if not done:
            filesystem.delete_file(written)
        return done

    def unregister_table(self, table: str) -> None:
        with database.translate_errors(self._uri), self._engine.begin() as connection:
            connection.execute(home_identity.tables.delete().where(self._match_table(table)))

    def _match_table(self, table: str) -> sa.ColumnElement[bool]:
        t = home_identity.tables
        return (t.c.catalog_name == self._name) & (t.c.table_namespace == NAMESPACE) & (t.c.table_name == table)


class RestCatalogClient:
    """The client of a REST catalog, with a request for each table."""

    def __init__(self, settings: Rest) -> None:
        self._settings, self._namespace = settings, settings.namespace
        self._connected: RestCatalog | None = None

    def metadata_locations(self, *tables: str) -> dict[str, str]:
        names = list(tables)
        if not names:
            listed = self._call_server(lambda server: server.list_tables(self._namespace)) or ()
            names = [name for *_, name in listed if not name.startswith(home_identity.ROUNDS)]

        def load_location(name: str) -> str | None:
            return self._call_server(lambda server: server.load_table((self._namespace, name)).metadata_location)

        locations = zip(names, filesystem.map_parallel(load_location, names), strict=True)
        return {name: location for name, location in locations if location is not None}

    def commit_steps(self, table: str, location: str, steps: Sequence[Step]) -> bool:
        """Change a table. The server checks only that the changed branches and tags are as they were read."""
        from pyiceberg.exceptions import CommitFailedException
        from pyiceberg.table.update import (
            AssertRefSnapshotId,
            AssertTableUUID,
            RemoveSnapshotRefUpdate,
            SetSnapshotRefUpdate,
            TableRequirement,
        )

        updates = tuple(
            SetSnapshotRefUpdate.model_validate({"ref-name": ref, "type": KINDS[step], "snapshot-id": snapshot[0]})
            if snapshot
            else RemoveSnapshotRefUpdate.model_validate({"ref-name": ref})
            for step, ref, *snapshot in steps
        )
        old = read_metadata(location)
        refs = {update.ref_name: old.refs.get(update.ref_name) for update in updates}
        as_seen: list[TableRequirement] = [AssertTableUUID(uuid=old.table_uuid)]
        for name, ref in refs.items():
            as_seen.append(AssertRefSnapshotId.model_validate({"ref": name, "snapshot-id": ref and ref.snapshot_id}))

        def commit_table(server: RestCatalog) -> bool:
            loaded = server.load_table((self._namespace, table))
            try:
                server.commit_table(loaded, tuple(as_seen), updates)
            except CommitFailedException:
                return False
            return True

        return self.metadata_locations(table).get(table) == location and bool(self._call_server(commit_table))

    def unregister_table(self, table: str) -> None:
        self._call_server(lambda server: server.drop_table((self._namespace, table)))

    def register_tables(self, located: Mapping[str, str]) -> None:
        """Register tables with their metadata files (table → location), in the namespace, which is made if needed.

        A table that is registered with another file is registered again. No file is deleted.
        """
        from pyiceberg.exceptions import NamespaceAlreadyExistsError, TableAlreadyExistsError

        def create_namespace(server: RestCatalog) -> None:
            with contextlib.suppress(NamespaceAlreadyExistsError):
                server.create_namespace(self._namespace)

        self._call_server(create_namespace)
        former = self.metadata_locations()

        def register_table(table: str) -> None:
            def register_new(server: RestCatalog) -> None:
                with contextlib.suppress(TableAlreadyExistsError):  # the answer to an earlier try was lost
                    server.register_table((self._namespace, table), located[table])

            if table in former and former[table] != located[table]:
                self._call_server(lambda server: server.drop_table((self._namespace, table)))
            if former.get(table) != located[table]:
                self._call_server(register_new)

        filesystem.map_parallel(register_table, located)

    def _call_server(self, question: Callable[[RestCatalog], T]) -> T | None:
        """Send a request and return the answer; None: the namespace or the table does not exist.

        The request is repeated where the server is busy or the connection fails.
        """
        from pyiceberg import exceptions as iceberg
        from requests import RequestException

        passing = (RequestException, iceberg.ServerError, iceberg.ServiceUnavailableError, iceberg.TooManyRequestsError)
        what = f"the catalog {self._settings.uri}"
        retry = Retrying(
            retry=retry_if_exception_type(passing),
            wait=wait_random_exponential(multiplier=0.2, max=4),
            stop=stop_after_attempt(TRIES),
            reraise=True,
        )
        try:
            return retry(lambda: question(self._connect_server()))
        except (iceberg.NoSuchNamespaceError, iceberg.NoSuchTableError):
            return None
        except passing as error:
            raise Unavailable(f"{what} does not answer ({type(error).__name__}).", _REMEDY) from error
        except Exception as error:
            self._connected = None  # its token may have expired
            says = next(iter(str(error).splitlines()), "") or type(error).__name__
            raise AltneuError(f"{what} refuses the request: {says}", _REMEDY) from error

    def _connect_server(self) -> RestCatalog:
        if self._connected is None:
            from pyiceberg.catalog.rest import RestCatalog

            # pyiceberg's own file access takes time to import, and is not used here
            files_by = {"py-io-impl": "altneu.pipeline.storage.duckdb_tables.PyArrowFileIO"}
            self._connected = RestCatalog("altneu", **_connection_properties(self._settings), **files_by)
        return self._connected


def _connection_properties(rest: Rest) -> dict[str, str]:
    """Return the properties by which Iceberg's clients in Java and Python reach a REST catalog."""
    properties = {"uri": rest.uri}
    properties |= {name: value for name, value in (("warehouse", rest.warehouse), ("scope", rest.scope)) if value}
    return properties | {name: secret for variable, name in _SECRETS.items() if (secret := read_secret(variable))}


def spark_options(home: Home) -> dict[str, str]:
    """Return the options of a home's Iceberg catalog in a Spark session."""
    rest = home.config.storage.catalog
    if rest is None:
        return jdbc_options(home.database, home.warehouse)
    return (
        {"type": "rest", "cache-enabled": "false"} | _connection_properties(rest) | _file_io_properties(home.warehouse)
    )


def jdbc_options(uri: str, warehouse: str) -> dict[str, str]:
    """Return the options of Iceberg's JDBC catalog for a database (SQLAlchemy's URI) and a warehouse.

    >>> jdbc_options("sqlite:////data/a.db", "/data/w")["uri"]
    'jdbc:sqlite:/data/a.db?busy_timeout=60000'
    >>> options = jdbc_options("postgresql+psycopg://me:se%40cret@db:5433/altneu?sslmode=require", "s3://b/w")
    >>> options["uri"], options["jdbc.user"], options["jdbc.password"]
    ('jdbc:postgresql://db:5433/altneu?sslmode=require', 'me', 'se@cret')
    """
    url = sa.make_url(uri)
    options = {
        "type": "jdbc",
        "warehouse": warehouse,
        "jdbc.schema-version": "V1",
        "cache-enabled": "false",  # another process may commit at any time
    } | _file_io_properties(warehouse)
    match url.get_backend_name():
        case "sqlite" if url.database and url.database != ":memory:":
            return options | {"uri": jdbc_sqlite_uri(Path(url.database).resolve(), f"busy_timeout={BUSY_MS}")}
        case "postgresql":
            host = (url.host or "localhost") + (f":{url.port}" if url.port else "")
            query = "&".join(f"{quote(k)}={quote(str(v))}" for k, v in url.query.items())
            options["uri"] = f"jdbc:postgresql://{host}/{url.database}" + (f"?{query}" if query else "")
            if url.username:
                options["jdbc.user"] = url.username
            # Java's driver for PostgreSQL itself reads only PGPASSFILE from the environment
            if password := url.password or os.environ.get("PGPASSWORD"):
                options["jdbc.password"] = str(password)
            return options
    raise UsageError(
        f"[storage] database = {url.render_as_string(hide_password=True)} is neither a SQLite file nor PostgreSQL.",
        'database = "sqlite:////path/altneu.db"   or   "postgresql+psycopg://user@host/altneu"',
    )


def _file_io_properties(warehouse: str) -> dict[str, str]:
    """Return the properties of the file access to the tables, where Spark's Hadoop does not do it."""
    return (
        {"io-impl": "org.apache.iceberg.aws.s3.S3FileIO"} | S3.from_environment().iceberg_options()
        if in_s3(warehouse)
        else {}
    )
