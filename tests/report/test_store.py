"""Pages in an object store (`[reports] uri`), on a real S3 server: as in a folder, and when the store fails."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from altneu.pipeline import report
from altneu.pipeline.errors import Unavailable
from altneu.pipeline.home.home import Home
from altneu.pipeline.report import page_writer
from altneu.pipeline.state import filesystem
from altneu.pipeline.state.ledger import Ledger
from altneu.pipeline.tasks import airflow_page
from tests.report.seed import DAILY, DAY, Seed, audit
from tests.s3 import Store

DAYS = [DAY, DAY + 1, DAY + 2]


@pytest.fixture
def both(tmp_path: Path, s3: str) -> list[Seed]:
    toml = f'{DAILY}[reports]\nuri = "{s3}/pages"\n'
    return [Seed(tmp_path / "disk", DAILY), Seed(tmp_path / "store", toml)]


def texts(home: Home) -> dict[str, str]:
    """Every page by its name, without when it was written."""
    found = {
        name: filesystem.read_file(f"{home.reports_at}/{name}").decode()
        for name in filesystem.list_files(home.reports_at)
    }
    return {name: re.sub(r"20\d\d-\d\d-\d\d[T ]\d\d:\d\d[\d:.+]*( UTC)?", "", text) for name, text in found.items()}


def puts(store: Store) -> list[str]:
    return sorted(path.rpartition("/")[2].partition("?")[0] for method, path in store.seen if method == "PUT")


def test_the_same_pages_as_in_a_folder(both: list[Seed], store: Store) -> None:
    """Links lead to neighbours by their names, so that a bucket is read as a folder is; only what changed is sent."""
    disk, other = both
    disk.run({DAY: (10, 0)}, {DAY: {"edges": 3}}, audit(DAY))
    report.write_pages(disk.ledger, [DAY])
    toml = other.home.path / "altneu.toml"
    toml.write_text(f'{toml.read_text()}[storage]\ndatabase = "{disk.home.database}"\n')
    remote = Home.open(other.home.path)
    report.write_pages(Ledger(remote), [DAY])
    for day in DAYS[1:]:
        disk.run({day: (10, 0)}, {day: {"edges": 3}}, audit(day))
        for ledger in (disk.ledger, Ledger(remote)):
            report.write_pages(ledger, [day])
    assert not remote.reports.exists() and not (remote.path / "reports").exists()
    found = texts(remote)
    assert found.keys() == texts(disk.home).keys() and len(found) > 5
    assert all(found[name] == text for name, text in texts(disk.home).items() if name != page_writer.MANIFEST)
    for name, text in found.items():
        for link in re.findall(r'href="([^"#:]+)(?:#[^"]*)?"', text):
            assert "/" not in link or link.startswith("data-docs/"), (name, link)
    store.seen.clear()
    report.refresh_pages(Ledger(remote))
    again = puts(store)
    assert "index.html" in again and not [name for name in again if name.startswith("epoch")]
    disk.run({DAY: (7, 0)}, {DAY: {"edges": -1}}, audit(DAY))
    store.seen.clear()
    report.write_pages(Ledger(remote), [DAY])
    assert len([name for name in puts(store) if name.startswith("epoch")]) == 3


def test_the_page_inside_airflow_shows_what_is_there(both: list[Seed], monkeypatch: pytest.MonkeyPatch) -> None:
    seed = both[1]
    seed.run({DAY: (10, 0)}, {DAY: {"edges": 3}}, audit(DAY))
    filesystem.write_file(f"{seed.home.reports_at}/diff-1-2.html", b"of two revisions")
    filesystem.write_file(f"{seed.home.reports_at}/data-docs/epoch=1/edges.html", b"of edges")
    filesystem.write_file(f"{seed.home.reports_at}/secret.html", b"secret")
    path = str(seed.home.path)
    assert airflow_page.report_page(path, "diff-1-2.html") == "of two revisions"
    assert airflow_page.report_page(path, "data-docs/epoch=1/edges.html") == "of edges"
    for name in ("secret.html", "diff-9-9.html", "data-docs/../secret.html", "data-docs/x/../../secret.html"):
        assert airflow_page.report_page(path, name) is None
    assert '"differences": ["1-2"]' in str(airflow_page.report_page(path, "index.html"))


@pytest.mark.parametrize("fault", ["503", "403", "cut"])
def test_a_otherthat_fails(fault: str, both: list[Seed], store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """No run fails by it: what came of it, and what to type, is told; the pages are made when the store answers."""
    monkeypatch.setattr(filesystem, "TRIES", 1)
    filesystem._s3_filesystem.cache_clear()
    seed = both[1]
    seed.run({DAY: (10, 0)}, {DAY: {"edges": 3}}, audit(DAY))
    for method in ("GET", "PUT"):
        store.faults = lambda verb, path, method=method: fault if verb == method else None  # type: ignore[misc]
        with pytest.raises(Unavailable, match=r"\[reports\] uri = s3://.*/pages: ") as error:
            report.write_pages(seed.ledger, [DAY])
        assert "altneu doctor" in str(error.value.next) and "altneu report" in str(error.value.next)
        written, why = report.write_run_pages(seed.ledger, [DAY])
        assert written == [] and why and "[reports] uri = s3://" in why and "Next: altneu doctor" in why
        assert "Unavailable" in str(report.refresh_pages(seed.ledger))
    store.faults = lambda method, path: fault if method == "GET" else None
    assert "2004-07-01" in str(
        airflow_page.report_page(str(seed.home.path), "epoch=2004-07-01.html")
    )  # made without it
    with pytest.raises(Unavailable):
        airflow_page.report_page(str(seed.home.path), "diff-1-2.html")
    store.faults = lambda method, path: None
    report.refresh_pages(seed.ledger, [DAY])
    assert "epoch=2004-07-01.html" in filesystem.list_files(seed.home.reports_at)
    filesystem._s3_filesystem.cache_clear()


def test_a_folder_elsewhere(tmp_path: Path) -> None:
    seed = Seed(tmp_path / "home", f'{DAILY}[reports]\nuri = "{tmp_path}/pages/"\n')
    seed.run({DAY: (10, 0)}, {DAY: {"edges": 3}}, audit(DAY))
    written = report.write_pages(seed.ledger, [DAY])
    assert written == [f"{tmp_path}/pages/index.html", f"{tmp_path}/pages/epoch=2004-07-01.html"]
    assert all(Path(page).is_file() for page in written) and not (tmp_path / "home" / "reports").exists()
