"""Doctor tells what is there and what is missing, with a remedy each time, quickly, and starts nothing."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from altneu.pipeline.local import doctor, setup
from altneu.pipeline.local.doctor import Check, list_checks
from altneu.pipeline.state import filesystem


def named(found: list[Check], name: str) -> Check:
    return next(check for check in found if check.name == name)


def test_every_check_that_is_not_fine_has_a_remedy(tmp_path: Path) -> None:
    for check in list_checks(tmp_path / "home"):
        assert check.ok is True or check.remedy, check


def test_an_empty_assets_folder_is_reported_with_the_way_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "ASSETS", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    found = list_checks()
    assert named(found, "Java").ok is False
    assert named(found, "Jar: Iceberg").ok is False and "altneu setup" in named(found, "Jar: Iceberg").remedy
    assert named(found, "Jar: GraphFrames").ok is None and "GraphX" in named(found, "Jar: GraphFrames").finding
    assert named(found, "Class-data archive").ok is None


def test_an_archive_of_another_place_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The JVM would not take it, and say nothing."""
    monkeypatch.setattr(doctor, "ASSETS", tmp_path / "here")
    for place in ("here", "elsewhere"):
        (tmp_path / place / "stamps").mkdir(parents=True)
    (tmp_path / "here" / "spark.jsa").write_bytes(bytes(3 << 20))
    keys = {place: next(s.key() for s in setup._setup_steps(tmp_path / place) if s.name == "archive")
            for place in ("here", "elsewhere")}  # fmt: skip
    for place, check in {
        "here": Check("Class-data archive", True, "3 MB"),
        "elsewhere": Check(
            "Class-data archive",
            None,
            "it was made for other jars, or in another place: Spark starts some seconds slower",
            "altneu setup",
        ),
    }.items():
        (tmp_path / "here" / "stamps" / "archive").write_text(keys[place])
        assert named(list_checks(), "Class-data archive") == check


def test_object_stores_are_asked(tmp_path: Path, s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "altneu.toml").write_text(
        f'[landing]\nuri = "{s3}/landing"\n[reports]\nuri = "{s3}/pages"\n[storage]\nwarehouse = "{s3}/tables"\n'
    )
    filesystem.write_file(f"{s3}/landing/epoch=1/a.csv", b"src,dst\n1,2\n")
    monkeypatch.setattr(doctor, "ASSETS", tmp_path)
    found = list_checks(tmp_path)
    assert named(found, "Landing") == Check("Landing", True, f"{s3}/landing: 1 epochs")
    assert named(found, "Reports") == Check("Reports", True, f"{s3}/pages: 0 files")
    assert named(found, "Warehouse") == Check("Warehouse", True, f"{s3}/tables: 0 files")
    assert named(found, "Jar: S3") == Check("Jar: S3", False, "tables in S3 need it", "altneu setup --s3")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    filesystem._s3_filesystem.cache_clear()
    for check in (named(list_checks(tmp_path), name) for name in ("Landing", "Warehouse", "Reports")):
        assert check.ok is False and "SIGNATURE" in check.finding and "environment" in check.remedy, check
    filesystem._s3_filesystem.cache_clear()


@pytest.mark.parametrize(("version", "ok"), [("17.0.15", True), ("21", True), ("11.0.2", False), ("25.0.1", False)])
def test_only_a_java_that_spark_supports_is_fine(
    version: str, ok: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-01-01' >&2\n")
    java.chmod(0o755)
    monkeypatch.setattr(doctor, "ASSETS", tmp_path)
    check = named(list_checks(), "Java")
    assert check.ok is ok and version in check.finding


def test_a_java_that_does_not_start_is_no_crash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("not a program")
    java.chmod(0o755)
    monkeypatch.setattr(doctor, "ASSETS", tmp_path)
    assert named(list_checks(), "Java").ok is False


def test_a_missing_and_a_wrong_package_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "EXPECTED_VERSIONS", {"pyspark": "0.1", "no-such-package": "1"})
    found = list_checks()
    assert named(found, "pyspark").ok is None and "tested with 0.1" in named(found, "pyspark").finding
    assert named(found, "no-such-package").ok is False


def test_the_expected_versions_are_those_of_the_lock() -> None:
    text = (Path(doctor.__file__).parents[3] / "infra" / "requirements.txt").read_text()
    for name, version in doctor.EXPECTED_VERSIONS.items():
        assert re.search(rf"^{name}=={re.escape(version)} ", text, re.M), name


def test_packages_that_may_be_left_out_are_told_with_their_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "EXPECTED_VERSIONS", {"no-such-package": "1"})
    monkeypatch.setattr(doctor, "BROUGHT_BY", {"no-such-package": "quality"})
    check = named(list_checks(), "no-such-package")
    assert check.ok is None and check.remedy == "pip install 'altneu[quality]'"


def test_each_package_that_may_be_left_out_is_in_its_extra() -> None:
    extras = tomllib.loads((Path(doctor.__file__).parents[3] / "pyproject.toml").read_text())["project"]
    for name, extra in doctor.BROUGHT_BY.items():
        asked = [Requirement(each) for each in extras["optional-dependencies"][extra]]
        assert name in {each.name for each in asked} and name in doctor.EXPECTED_VERSIONS
        assert name not in {Requirement(each).name for each in extras["dependencies"]}


def home_with(path: Path, toml: str) -> Path:
    path.mkdir()
    (path / "altneu.toml").write_text(toml)
    return path


@pytest.mark.parametrize(
    ("toml", "ok", "found"),
    [
        ("", True, "sqlite"),
        ('[storage]\ndatabase = "postgresql+psycopg://u@127.0.0.1:9/none"', False, "u@127.0.0.1"),
        ('[storage]\ndatabase = "nonsense"', False, "[storage] database"),
        ("not toml", False, "TOML"),
    ],
)
def test_the_database(toml: str, ok: bool, found: str, tmp_path: Path) -> None:
    check = named(list_checks(home_with(tmp_path / "home", toml)), "Database")
    assert check.ok is ok and found in check.finding and "secret" not in check.finding


def test_a_broken_sqlite_file_is_told(tmp_path: Path) -> None:
    home = home_with(tmp_path / "home", "")
    (home / "altneu.db").write_text("this is no database, whatever its name says" * 10)
    assert named(list_checks(home), "Database").ok is False


def test_a_home_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("")
    assert named(list_checks(tmp_path / "home"), "Home").ok is False


def test_doctor_loads_neither_spark_nor_great_expectations(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from altneu.pipeline.local.doctor import list_checks; "
        f"list_checks(Path({str(tmp_path)!r})); "
        "print([m for m in ('pyspark', 'great_expectations', 'airflow', 'pandas', 'numba') if m in sys.modules])"
    )
    said = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path(doctor.__file__).parents[3]
    )
    assert said.stdout.strip() == "[]"
