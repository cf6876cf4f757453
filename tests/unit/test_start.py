"""What a command imports: a small one begins at once, so it must not load what only large ones need."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.report.seed import DAY, Seed

LARGE = {"pyspark", "py4j", "great_expectations", "numba", "pandas", "airflow", "opentelemetry", "jinja2"}
ARROW = {"numpy", "pyarrow", "duckdb", "pyiceberg", "sqlglot"}
NOT = {
    "--help": LARGE | ARROW | {"sqlalchemy", "tomlkit", "alembic"},
    "show --help": LARGE | ARROW | {"sqlalchemy", "tomlkit", "alembic"},
    "status": LARGE | ARROW | {"tomlkit"},
    "status --format json": LARGE | ARROW | {"tomlkit"},
    "show totals": LARGE | ARROW | {"tomlkit"},
    "plan": LARGE | (ARROW - {"sqlglot"}) | {"tomlkit"},  # conditions of motifs are read by sqlglot
    "incidents": LARGE | ARROW | {"tomlkit"},
}


@pytest.mark.parametrize("command", NOT)
def test_what_is_not_imported(command: str, tmp_path: Path) -> None:
    seed = Seed(tmp_path / "home")
    seed.run({DAY: (9, 0)}, {DAY: {"vertices": 4, "edges": 6}})
    text = f"""if True:
        import sys
        from altneu.pipeline import cli
        try:
            cli.main(["--home", {str(seed.home.path)!r}, *{command.split()!r}])
        except SystemExit as ended:
            assert not ended.code, ended.code
        print("imported:", *sorted({{name.partition(".")[0] for name in sys.modules}}))
    """
    found = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    imported = set(found.stdout.splitlines()[-1].split()[1:])
    assert "typer" in imported
    assert sorted(imported & NOT[command]) == []


def test_a_command_that_read_with_duckdb_ends_in_silence() -> None:
    """What it leaves to the end of the process, DuckDB calls leaks, in a hundred lines."""
    text = "import duckdb\nfrom altneu.pipeline import cli\ncli.main(['--version'])"
    found = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
    assert (found.returncode, found.stderr) == (0, "")


def test_the_help_lists_the_commands_in_one_order_whatever_was_imported_first() -> None:
    text = (
        "import altneu.pipeline.cli.status, altneu.pipeline.cli.admin\n"
        "from altneu.pipeline.cli.command_line import app\n"
        "print(*(each.callback.__module__.rpartition('.')[2] for each in app.registered_commands))"
    )
    found = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True).stdout.split()
    order = ["land", "runs", "approval", "status", "query", "verify", "admin"]
    assert list(dict.fromkeys(found)) == order
