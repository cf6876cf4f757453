"""The types of the values in `altneu.toml`, for the models of `settings`, and the check of a condition."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import Annotated, Literal

import sqlalchemy as sa
from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_core import PydanticCustomError

from ..errors import UsageError
from ..secret_masking import is_secret
from .approval_rule import check_rule
from .columns import reserved
from .schedule import Schedule

_MASTER = re.compile(
    r"local(\[([1-9]\d*|\*)(, ?[1-9]\d*)?\])?|local-cluster\[[1-9]\d*, ?[1-9]\d*, ?[1-9]\d*\]|yarn"
    r"|spark://[^\s/,:]+:\d+(,[^\s/,:]+:\d+)*|k8s://\S+|sc://\S+"
)
MASTERS = '"local[*]", "local[N]", "spark://host:port", "yarn", "k8s://…", "sc://host:port" (Spark Connect)'

_PASSWORD = (
    "it contains a password, which is not allowed in this file: leave it out, and set PGPASSWORD, or write the line "
    "host:port:database:user:password into ~/.pgpass or the file that PGPASSFILE names"
)
_TOKEN = "it contains a token, which is not allowed in this file: set SPARK_CONNECT_AUTHENTICATE_TOKEN, or …_TOKEN_FILE"

_COLUMNS = {"epoch", "label", "revision", "vertices", "edges", "triangles", "max_trussness", "transitivity"}
_COLUMNS |= {
    "vertex",
    "degree",
    "clustering",
}  # of `show totals` and `show vertices`, which have a column for each motif
_CONDITION_COLUMNS = ("src", "dst", "a", "b", "epoch")  # columns that a condition may use besides the value columns


def is_length(text: str) -> bool:
    try:
        Schedule.from_text(text)
    except UsageError:
        return False
    return True


def is_database(text: str) -> bool:
    """Tell whether a text is the URI of a SQLite file, or of a PostgreSQL database whose driver is installed.

    A missing psycopg is not an error here: the connection reports what to install.
    """
    try:
        url = sa.make_url(text)
        if url.get_driver_name() != "psycopg":
            url.get_dialect().import_dbapi()
    except (sa.exc.ArgumentError, sa.exc.NoSuchModuleError, ImportError, ValueError):
        return False
    backend = url.get_backend_name()
    return bool(url.database) and (backend == "postgresql" or (backend == "sqlite" and url.database != ":memory:"))


def without_password(text: str) -> str:
    """Return the URI of a database unchanged. Raises `ValueError` where it contains a password."""
    try:
        url = sa.make_url(text)
    except (sa.exc.ArgumentError, ValueError):  # it is not a URI, which the next validator reports
        return text
    if url.password is not None or any(is_secret(name) for name in url.query):
        raise ValueError(_PASSWORD)
    return text


def without_token(text: str) -> str:
    """Return the address of a Spark Connect server unchanged. Raises `ValueError` where it contains a token."""
    if ";token=" in text:
        raise ValueError(_TOKEN)
    return text


def is_master(text: str) -> bool:
    return _MASTER.fullmatch(text) is not None


def is_place(text: str) -> bool:
    """Tell whether a text is a folder, or a URI without keys and options, which belong into the environment.

    >>> [is_place(each) for each in ("tables", "s3://bucket/a", "s3://key:secret@bucket/a", "s3://b?region=x", "s3:/b")]
    [True, True, False, False, False]
    """
    if not re.match(r"\w+:", text) or text.startswith("file:"):
        return bool(text)
    match = re.fullmatch(r"(\w+)://([^/?#]*)(/[^?#]*)?", text)
    # in Azure the container is written before the host and an @
    return bool(match and (match[2] or match[1] == "hdfs") and ("@" not in match[2] or match[1].startswith("abfs")))


def is_endpoint(text: str) -> bool:
    """Tell whether a text is the address of a service, without anything secret in it.

    >>> [is_endpoint(each) for each in ("https://host:8181/api", "host:8181", "https://me:pw@host", "http://h?token=x")]
    [True, False, False, False]
    """
    return re.fullmatch(r"https?://[^\s/?#@]+(/[^\s?#@]*)?", text) is not None


def is_landing(text: str) -> bool:
    """Tell whether a text names a folder for the landing, on this machine or in a store that Arrow reads.

    >>> [is_landing(each) for each in ("/data/landing", "gs://bucket/landing", "ftp://host/landing")]
    [True, True, False]
    """
    return is_place(text) and re.match(r"(file|s3a?|gs|gcs|abfss?|hdfs):|(?!\w+:)", text) is not None


def is_memory(text: str) -> bool:
    """Tell whether a text is a heap size for a JVM, of 512 MiB or more, since Spark needs at least 450 MiB."""
    match = re.fullmatch(r"(\d{1,12})([kmgt])", text.lower())
    return match is not None and int(match[1]) * 1024 ** "kmgt".index(match[2]) >= 512 * 1024


def _text_that(fits: Callable[[str], bool]) -> AfterValidator:
    """Return a validator of texts. The message about what is allowed comes from the setting."""

    def check_text(value: str) -> str:
        if not fits(value):
            raise PydanticCustomError("not_allowed", "not allowed")
        return value

    return AfterValidator(check_text)


def _check_column(name: str) -> str:
    if why := reserved(name):
        raise ValueError(why)
    return name


def _check_relation_name(name: str) -> str:
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,19}", name) or name in RELATIONS or name.endswith(("_rows", "_state")):
        raise ValueError(
            "a relation's name begins with a letter, has at most 20 lower-case letters, digits and _, does not end in "
            f"_rows or _state, and is none of {', '.join(RELATIONS)}"
        )
    return name


def _check_motif_name(name: str) -> str:
    if not re.fullmatch(r"[\w-]{1,64}", name) or name.lower() in _COLUMNS:
        raise ValueError("a name consists of letters, digits, _ and -, and is not a column of `show`")
    return name


def _check_motif(text: str | list[str]) -> str | list[str]:
    from altneu.algorithms.graph import motif_patterns

    motif_patterns.parse_motif(text)  # raises ValueError with a message
    return text


def _spark_value(value: object) -> str:
    """Return a setting's value as the text that Spark expects. Raises `ValueError`."""
    if isinstance(value, dict):
        raise ValueError('write a name with dots in quotes: "spark.driver.memory" = "8g"')
    if not isinstance(value, (str, int, float)):
        raise ValueError("expected text")
    return str(value).lower() if isinstance(value, bool) else str(value)


RELATIONS = ("landed", "arcs", "edges", "vertices")  # what queries may name in every home
TYPES = ("long", "double", "string", "boolean")
ServingTable = Literal["vertex_history", "edge_now", "epoch_totals"]
PublishedTable = Literal["vertex_history", "edge_now", "epoch_totals", "changes"]  # not all of them are serving tables
EDGE_NOW = ("trussness", "both_ways")  # the columns of `edge_now` besides src, dst and the value columns

Rule = Annotated[str, AfterValidator(check_rule)]
Length = Annotated[str, _text_that(is_length)]
AuditedEpochs = Annotated[str, Field(pattern=r"^(frontier|all|(every|sample) [1-9][0-9]{0,17})$")]
AuditMode = Annotated[str, Field(pattern=r"^(auto|full|local|rolling [1-9][0-9]{0,5})$")]
Database = Annotated[str, AfterValidator(without_password), _text_that(is_database)]
Place = Annotated[str, _text_that(is_place)]
Endpoint = Annotated[str, _text_that(is_endpoint)]
Namespace = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,62}$")]
LandingPlace = Annotated[str, _text_that(is_landing)]
Master = Annotated[str, _text_that(is_master), AfterValidator(without_token)]
SparkValue = Annotated[str, BeforeValidator(_spark_value)]
Column = Annotated[str, AfterValidator(_check_column)]
Type = Annotated[str, _text_that(TYPES.__contains__)]
KeyType = Annotated[str, _text_that(("vertex", "long", "string").__contains__)]
RelationName = Annotated[str, AfterValidator(_check_relation_name)]
MotifName = Annotated[str, AfterValidator(_check_motif_name)]
Motif = Annotated[str | list[str], BeforeValidator(_check_motif)]


def condition_fault(condition: str, values: Mapping[str, object]) -> str | None:
    """Say why a text is not a condition on these value columns; None: it is one."""
    from altneu.algorithms.sql_predicates import Condition

    try:
        read = Condition.from_text(condition)
    except ValueError as error:
        return str(error)
    types = dict.fromkeys(_CONDITION_COLUMNS, "long") | {name.casefold(): type_ for name, type_ in values.items()}
    for column in read.columns:
        if column.name.casefold() not in types:
            similar = suggest_name(column.name, [*values, "src", "dst"])
            known = ", ".join(["src", "dst", *values])
            reason = reserved(column.name)
            similar = similar or (
                f", and no value column can have this name: {reason}"
                if reason
                else f'; to declare a value column: [values] {toml_key(column.name)} = "long"'
            )
            return f"there is no column {column.name!r} (position {column.position}){similar}; the columns are: {known}"
    if read.is_one_column and types[read.columns[0].name.casefold()] != "boolean":
        return f"{read.columns[0].name} is a value, not a condition: compare it with something"
    return None


def suggest_name(name: str, known: Iterable[str]) -> str:
    """Return ". Did you mean …?" with the most similar known name, or an empty text."""
    by_lower = {other.lower(): other for other in reversed(list(known))}
    matches = get_close_matches(name.lower(), by_lower, 1, 0.6)
    return f". Did you mean {by_lower[matches[0]]}?" if matches else ""


def toml_key(name: str) -> str:
    """Write a key as TOML requires it: bare where that is allowed, else in quotes."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name, ensure_ascii=False)
