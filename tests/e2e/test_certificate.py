"""A certificate is verified by one file that knows nothing of altneu, and every planted fault is named."""

from __future__ import annotations

import ast
import hashlib
import json
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from altneu.algorithms.graph.kernels.certificate_counts import count_certificate
from altneu.algorithms.graph.kernels.certificate_history import CertificateSpans, certify_history
from altneu.pipeline.checking import certificate_verifier
from altneu.pipeline.home.home import Home
from altneu.pipeline.state.ledger import Ledger
from tests import home_helpers, reference, seeds
from tests.builders import draw_batch, make_clique
from tests.canonical import History
from tests.e2e.conftest import Altneu
from tests.ledger_only import run_without_spark

Rows = list[dict[str, Any]]
Fault = Callable[[Path], None]
VERIFIER = Path(certificate_verifier.__file__)


def publish_history(path: Path) -> tuple[Home, Ledger]:
    """Publish epochs in which edges come and expire, correct one, and land another one again without running it."""
    home, ledger = home_helpers.make(path, "[edges]\nlive_for = 3\n")
    rng = random.Random(seeds.one(1))
    for epoch in range(1, 7):
        home_helpers.put(home, epoch, [*make_clique(*range(epoch, epoch + 4)), *draw_batch(rng, range(9), 8)])
    home_helpers.run(ledger, [1, 2, 3, 4])
    home_helpers.run(ledger, [5, 6])
    home_helpers.put(home, 2, draw_batch(rng, range(9), 12))
    home_helpers.run(ledger, [2])
    home_helpers.put(home, 6, make_clique(1, 2))
    return home, ledger


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Home, Path]]:
    from altneu.pipeline import cli

    home = tmp_path_factory.mktemp("certified") / "home"
    with run_without_spark():
        opened, _ = publish_history(home)
        with pytest.raises(SystemExit):
            cli.main(["--home", str(home), "certify"])
    yield opened, home / "reports" / "certificate-r3"


@pytest.fixture
def folder(certified: tuple[Home, Path], tmp_path: Path) -> Path:
    """A copy of the certificate, to damage."""
    return Path(shutil.copytree(certified[1], tmp_path / "copy"))


def verify(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], landing: Path | None = None
) -> list[str]:
    """Verify a folder; return the names of the checks that fail."""
    monkeypatch.chdir(folder)
    capsys.readouterr()
    right = certificate_verifier.verify(landing)
    wrong = [line[6:].partition(":")[0] for line in capsys.readouterr().out.splitlines() if line.startswith("WRONG")]
    assert right == (not wrong)
    return wrong


def change_rows(folder: Path, name: str, change: Callable[[Rows], None]) -> None:
    """Change the rows of a file as a forger does, who makes its digest right again."""
    path = folder / f"{name}.parquet"
    table = pq.read_table(path)
    rows = table.to_pylist()
    change(rows)
    pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), path)
    change_manifest(
        folder, lambda manifest: manifest["files"].update({path.name: hashlib.sha256(path.read_bytes()).hexdigest()})
    )


def change_manifest(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    path = folder / "certificate.json"
    manifest = json.loads(path.read_text())
    change(manifest)
    path.write_text(json.dumps(manifest))


def in_rows(name: str, change: Callable[[Rows], Any]) -> Fault:
    return lambda folder: change_rows(folder, name, lambda rows: change(rows) and None)


def set_in(
    choose: Callable[[dict[str, Any]], bool], **values: Callable[[dict[str, Any]], Any]
) -> Callable[[Rows], Any]:
    """Set values of the first row that is chosen."""

    def change(rows: Rows) -> None:
        row = next(each for each in rows if choose(each))
        row.update({name: value(row) for name, value in values.items()})

    return change


def reverse_order(rows: Rows) -> None:
    for row in rows:
        row["place"] = -row["place"]


def prolong_a_life(rows: Rows) -> None:
    begun = {(row["a"], row["b"], row["epoch"]) for row in rows}
    row = next(row for row in rows if row["until"] and (row["a"], row["b"], row["until"]) not in begun)
    row["until"] += 1


def swap_landed_digest(manifest: dict[str, Any]) -> None:
    batch = next(each for each in manifest["batches"] if each["files"])
    batch["files"][0]["sha256"] = "0" * 64


def forge_fingerprint(manifest: dict[str, Any]) -> None:
    by_epoch = manifest["fingerprints"]["edges"]
    by_epoch[next(iter(by_epoch))] = "0" * 32


FAULTS: dict[str, tuple[str, Fault]] = {  # what is planted → the check that names it, and how
    "a file is another": (
        "files of the certificate",
        lambda folder: shutil.copyfile(folder / "totals.parquet", folder / "vertices.parquet") and None,
    ),
    "a file is missing": ("files of the certificate", lambda folder: (folder / "totals.parquet").unlink()),
    "a trussness is too high": (
        "no trussness is too high",
        in_rows("edges", set_in(lambda row: True, trussness=lambda row: row["trussness"] + 1)),
    ),
    "a trussness is too low": (
        "no trussness is too low",
        in_rows("edges", set_in(lambda row: row["trussness"] == 4, trussness=lambda row: 3)),
    ),
    "the order proves nothing": ("no trussness is too low", in_rows("edges", reverse_order)),
    "an edge is left out": ("degree of vertices", in_rows("edges", lambda rows: rows.pop())),
    "an edge is there twice": ("edges are listed once", in_rows("edges", lambda rows: rows.append(dict(rows[0])))),
    "an edge has one end": (
        "edges have two ends and a trussness",
        in_rows("edges", set_in(lambda row: True, b=lambda row: row["a"])),
    ),
    "an edge lives too long": ("degree of vertices", in_rows("edges", prolong_a_life)),
    "a vertex has too many triangles": (
        "triangles of vertices",
        in_rows("vertices", set_in(lambda row: True, triangles=lambda row: row["triangles"] + 1)),
    ),
    "a vertex has another degree": (
        "degree of vertices",
        in_rows("vertices", set_in(lambda row: True, degree=lambda row: row["degree"] + 1)),
    ),
    "the total of triangles is wrong": (
        "totals",
        in_rows("totals", set_in(lambda row: row["measure"] == "triangles", value=lambda row: row["value"] + 3)),
    ),
    "the size of a truss is wrong": (
        "totals",
        in_rows("totals", set_in(lambda row: row["measure"] == "truss", value=lambda row: row["value"] - 1)),
    ),
    "a fingerprint is another": ("fingerprints", lambda folder: change_manifest(folder, forge_fingerprint)),
    "a landed file is another": ("digests of batches", lambda folder: change_manifest(folder, swap_landed_digest)),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_named(
    fault: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    check, plant = FAULTS[fault]
    plant(folder)
    assert check in verify(folder, monkeypatch, capsys)


def test_what_is_right_is_verified(
    folder: Path, certified: tuple[Home, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not verify(folder, monkeypatch, capsys, certified[0].landing)
    manifest = json.loads((folder / "certificate.json").read_text())
    assert {batch["epoch"]: bool(batch["files"]) for batch in manifest["batches"]} == {
        **dict.fromkeys(range(1, 6), True),
        6: False,  # landed again since
    }
    landed = certified[0].landing / "epoch=1" / "rows.csv"
    before = landed.read_text()
    landed.write_text(before + "7,8,upsert,0\n")
    assert verify(folder, monkeypatch, capsys, certified[0].landing) == ["landed files"]
    landed.write_text(before)


def test_a_forgery_that_is_right_in_itself_has_other_fingerprints(
    certified: tuple[Home, Path], tmp_path: Path, typed: Altneu, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """An edge 100-101 that was never landed: the certificate of a home that has it is right, but not of this home."""
    with run_without_spark():
        home, ledger = publish_history(tmp_path / "home")
        home_helpers.put(home, 6, make_clique(100, 101))
        home_helpers.run(ledger, [6])
        assert typed("certify", "--output", tmp_path / "forged").code == 0
    honest = json.loads((certified[1] / "certificate.json").read_text())
    change_manifest(tmp_path / "forged", lambda manifest: manifest.update(fingerprints=honest["fingerprints"]))
    assert verify(tmp_path / "forged", monkeypatch, capsys) == ["fingerprints"]


def test_one_epoch_and_a_home_with_names(ledger_only: object, typed: Altneu, tmp_path: Path) -> None:
    home, ledger = home_helpers.make(tmp_path / "home", '[vertices]\nids = "string"\n')
    home_helpers.put(home, 1, make_clique("ada", "bob", "cy", "dee"))
    home_helpers.put(home, 2, make_clique("dee", "eve", "fay"))
    home_helpers.run(ledger, [1, 2])
    assert typed("certify", "--as-of", "2", "--output", tmp_path / "two").code == 0
    names = {row["id"]: row["name"] for row in pq.read_table(tmp_path / "two" / "names.parquet").to_pylist()}
    edges = pq.read_table(tmp_path / "two" / "edges.parquet").to_pylist()
    found = {tuple(sorted((names[row["a"]], names[row["b"]]))): row["trussness"] for row in edges}
    pairs = {frozenset(row[:2]) for row in (*make_clique("ada", "bob", "cy", "dee"), *make_clique("dee", "eve", "fay"))}
    assert found == {tuple(sorted(pair)): 4 if pair <= {"ada", "bob", "cy", "dee"} else 3 for pair in pairs}
    assert typed("certify", "--output", tmp_path / "two").code == 1  # it is there
    assert typed("certify", "--as-of", "3").code == 2  # after the frontier


def test_a_published_trussness_that_is_wrong_has_no_certificate(
    ledger_only: object, typed: Altneu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, ledger = home_helpers.make(tmp_path / "home")
    home_helpers.put(home, 1, make_clique(1, 2, 3, 4))
    home_helpers.run(ledger, [1])
    right = certify_history

    def wrong(*arguments: Any) -> CertificateSpans:
        spans = right(*arguments)
        return spans._replace(trussness=spans.trussness + 1)

    monkeypatch.setattr("altneu.algorithms.graph.kernels.certificate_history.certify_history", wrong)
    outcome = typed("certify")
    assert outcome.code == 1 and "altneu audit" in outcome.err
    assert not (home.reports / "certificate-r1").exists()


@pytest.mark.usefixtures("tiny")
def test_a_certificate_of_real_tables(numbers: History, tmp_path: Path, altneu: Altneu) -> None:
    """By either engine it has the same rows."""
    home, _ = numbers.copy(tmp_path / "home")
    outcome = altneu("certify", "1", home=home.path)
    assert outcome.code == 0 and "every trussness and count is right" in outcome.out
    assert altneu("certify", "1", "--engine", "spark", "--output", tmp_path / "spark", home=home.path).code == 0
    for file in (tmp_path / "spark").glob("*.parquet"):
        folders = home.reports / "certificate-r1", file.parent
        by_duckdb, by_spark = (pq.read_table(folder / file.name).to_pylist() for folder in folders)
        assert by_duckdb and sorted(map(repr, by_duckdb)) == sorted(map(repr, by_spark)), file.name
    index = (home.reports / "index.html").read_text()
    assert 'href="certificate-r1/certificate.json"' in index


@pytest.mark.parametrize("seed", seeds.several(range(20)))
def test_the_order_proves_the_trussness_of_each_epoch(seed: int) -> None:
    rng = random.Random(seed)
    rows = sorted(
        {
            (*sorted(rng.sample(range(8), 2)), begin, begin + rng.randint(1, 4))
            for begin in range(0, 12, 4)
            for _ in range(14)
        }
    )
    lives: dict[tuple[int, int, int], int] = {}
    for a, b, begin, until in rows:
        lives[a, b, begin] = until  # of an edge at most one life in four epochs
    columns = np.array([(*key, until) for key, until in lives.items()], np.int64).T
    spans = certify_history(*(np.ascontiguousarray(column) for column in columns), 1, 13)
    for epoch in range(1, 14):
        here = (spans.epoch <= epoch) & (epoch < spans.until)
        a, b, _, _, k, place = (column[here] for column in spans)
        alive = {key[:2] for key, until in lives.items() if key[2] <= epoch < until}
        assert dict(zip(zip(a.tolist(), b.tolist(), strict=True), k.tolist(), strict=True)) == reference.trussness(
            alive
        )
        counts = count_certificate(a, b, (k - 2).astype(np.int32), place)
        assert (counts.backing >= k - 2).all() and (counts.first <= k - 2).all()


def test_the_verifier_is_one_short_file_without_altneu() -> None:
    text = VERIFIER.read_text()
    assert len(text.splitlines()) <= 250
    imported = {
        name.split(".")[0]
        for node in ast.walk(ast.parse(text))
        for name in (
            [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else [each.name for each in node.names]
            if isinstance(node, ast.Import)
            else []
        )
    }
    assert imported <= {"argparse", "hashlib", "json", "os", "sys", "tempfile", "pathlib", "duckdb"}
