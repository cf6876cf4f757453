"""A landing in an object store, on a real S3 server: what counts as a batch, what `altneu land` does to it, and what
failures and kills leave."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import unquote

import pytest

from altneu.pipeline import landing
from altneu.pipeline.errors import AltneuError, Unavailable
from altneu.pipeline.home.home import Home
from altneu.pipeline.landing import LandOptions, batch_files, local_landing, object_store_landing
from altneu.pipeline.landing.file_reader import open_stream
from altneu.pipeline.state import filesystem
from altneu.pipeline.state.ledger import Ledger
from altneu.pipeline.tasks import dag_epochs
from tests.s3 import Store

EVERY = '[epochs]\nevery = "1d"\n'
DAY = 86_400


@dataclass
class Scene:
    """A home whose landing is in S3. `put` is another program that uploads."""

    home: Home
    store: Store
    raw: Path

    @property
    def base(self) -> str:
        return self.home.landed_at

    def land(self, text: str, epoch: int | None = 1, **options: object) -> landing.LandReport:
        self.raw.write_text(text)
        return landing.land(Home.open(self.home.path), [self.raw], LandOptions(epoch=epoch, **options))  # type: ignore[arg-type]

    def put(self, name: str, text: str | bytes = "src,dst\n1,2\n") -> None:
        filesystem.write_file(f"{self.base}/{name}", text if isinstance(text, bytes) else text.encode())

    def seen(self) -> dict[str, list[str]]:
        """Epoch → the rows of its batch; of one that is none yet, nothing."""
        found = landing.list_batches(Home.open(self.home.path)).values()
        return {
            each.label: sorted(
                line for file in each.files for line in open_stream(file.location).read().decode().split()[1:]
            )
            for each in found
            if each.incomplete is None
        }

    def why(self, epoch: int = 1) -> str | None:
        return landing.list_batches(Home.open(self.home.path))[epoch].incomplete

    def names(self) -> set[str]:
        return set(filesystem.list_sizes(self.base))


@pytest.fixture
def scene(tmp_path: Path, s3: str, store: Store) -> Scene:
    path = tmp_path / "home"
    path.mkdir()
    (path / "altneu.toml").write_text(f'[landing]\nuri = "{s3}/landing"\n')
    return Scene(Home.open(path), store, tmp_path / "raw.csv")


def test_landing_again_appending_and_emptying(scene: Scene) -> None:
    scene.land("src,dst\n1,2\n1,3\n")
    assert scene.seen() == {"1": ["1,2", "1,3"]}
    first = scene.names()
    scene.land("src,dst\n7,8\n", epoch=2)
    again = scene.land("src,dst\n1,2\n4,5\n")
    assert (again.replaced_epochs, again.replaced_rows) == (1, 2)
    assert scene.seen() == {"1": ["1,2", "4,5"], "2": ["7,8"]}
    assert scene.names() & first == {"epoch=1/_SUCCESS"}, "the former file is deleted"
    more = scene.land("src,dst\n5,6\n", append=True)
    assert more.rows == 1 and scene.seen()["1"] == ["1,2", "4,5", "5,6"]
    batch = landing.list_batches(scene.home)[1]
    assert [file.name for file in batch.files] == ["000-raw.csv", "001-raw.csv"] and landing.count_batch_rows(
        batch
    ) == 3
    scene.land("src,dst\n9,9\n", dry_run=True)
    assert scene.seen()["1"] == ["1,2", "4,5", "5,6"]
    landing.land(scene.home, [], LandOptions(epoch=1, empty=True))
    assert scene.seen() == {"1": [], "2": ["7,8"]} and scene.why() is None
    assert not list((scene.home.path / "landing").glob("_work/*/*")), "nothing is left on this machine"


def test_rejected_rows_and_declared_settings_are_kept_here(scene: Scene) -> None:
    report = scene.land("src,dst,weight\n1,2,5\nx,2,5\n3,4,6\n" + "5,6,7\n" * 30)
    assert report.rejected_file is not None and "x,2,5" in report.rejected_file.read_text()
    assert 'weight = "long"' in (scene.home.path / "altneu.toml").read_text()
    assert not {name for name in scene.names() if not name.startswith("epoch=1/")}


def test_digests_are_those_of_a_folder_and_nothing_is_read_twice(scene: Scene, tmp_path: Path) -> None:
    """So a landing may move into a store, and nothing is published again."""
    local, ledger = Home(tmp_path / "local", Home.draft_home(tmp_path).config), Ledger(scene.home, writes=True)
    scene.land("src,dst\n1,2\n")
    packed = gzip.compress(b"src,dst\n3,4\n", mtime=0)
    scene.put("epoch=2/a.csv.gz", packed)
    scene.put("epoch=2/_SUCCESS", b"")
    landing.land(local, [scene.raw], LandOptions(epoch=1))
    (local.landing / "epoch=2").mkdir()
    (local.landing / "epoch=2" / "a.csv.gz").write_bytes(packed)
    here, there = landing.list_batches(local), landing.list_batches(scene.home)
    digests = landing.digest_batches(ledger, there.values())
    assert digests == landing.digest_batches(ledger, here.values())

    def reads() -> list[str]:
        read = [path for method, path in scene.store.seen if method == "GET" and ".csv" in path]
        scene.store.seen.clear()
        return read

    assert len(reads()) == 2
    assert landing.digest_batches(ledger, landing.list_batches(scene.home).values()) == digests and not reads()
    assert landing.is_unchanged(ledger, there.values(), digests) and not reads()
    scene.put("epoch=2/a.csv.gz", gzip.compress(b"src,dst\n3,5\n"))  # as many bytes, perhaps in the same second
    assert not landing.is_unchanged(ledger, there.values(), digests)
    assert landing.digest_batches(ledger, landing.list_batches(scene.home).values())[2] != digests[2]
    scene.land("src,dst\n1,9\n")
    assert not landing.is_unchanged(ledger, [there[1]], digests), "its file has gone"


def test_an_old_object_is_known_by_the_listing_alone(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger(scene.home, writes=True)
    scene.land("src,dst\n1,2\n")
    now = time.time()
    monkeypatch.setattr(local_landing, "time", SimpleNamespace(time=lambda: now + 1_000))
    digests = landing.digest_batches(ledger, landing.list_batches(scene.home).values())
    there = landing.list_batches(scene.home)
    scene.store.seen.clear()
    assert landing.digest_batches(ledger, there.values()) == digests and not scene.store.seen


Do = Callable[[Scene], object]
OTHERS: dict[str, tuple[list[Do], str | None]] = {  # what is done, and why epoch 1 is no batch (None: it is one)
    "no marker": ([lambda s: s.put("epoch=1/a.csv")], "no _SUCCESS says that a.csv is the last"),
    "a marker": ([lambda s: s.put("epoch=1/a.csv"), lambda s: s.put("epoch=1/_SUCCESS", "")], None),
    "a marker before the end": (
        [lambda s: s.put("epoch=1/_SUCCESS", ""), lambda s: time.sleep(1.1), lambda s: s.put("epoch=1/a.csv")],
        "no _SUCCESS says that a.csv is the last",
    ),
    "a marker of Spark with text": (
        [lambda s: s.put("epoch=1/a.csv"), lambda s: s.put("epoch=1/_SUCCESS", '{"committer": "magic"}')],
        None,
    ),
    "an unfinished name": ([lambda s: s.put("epoch=1/a.csv.part")], "still being written, as its name shows"),
    "only a marker": ([lambda s: s.put("epoch=1/_SUCCESS", "")], "the folder has no data file"),
    "an empty batch": ([lambda s: s.put("epoch=1/_EMPTY", "")], None),
    "a file after a land": (
        [lambda s: s.land("src,dst\n1,2\n"), lambda s: s.put("epoch=1/z.csv")],
        "no _SUCCESS says that z.csv is the last",
    ),
    "a land over what others put": ([lambda s: s.put("epoch=1/z.csv"), lambda s: s.land("src,dst\n1,2\n")], None),
    "a sealed folder, its seal first": (
        [lambda s: s.put("epoch=1/_SUCCESS", json.dumps({"rows": 1, "files": {"a.csv": "12:1700000000000000000"}}))],
        "a.csv, which its _SUCCESS names, does not exist with the 12 bytes",
    ),
    "a sealed folder, cut off": (
        [
            lambda s: s.put("epoch=1/_SUCCESS", json.dumps({"rows": 1, "files": {"a.csv": "12:1700000000000000000"}})),
            lambda s: s.put("epoch=1/a.csv", "src,dst\n"),
        ],
        "a.csv, which its _SUCCESS names, does not exist with the 12 bytes",
    ),
    "a sealed folder, whole": (
        [
            lambda s: s.put("epoch=1/_SUCCESS", json.dumps({"rows": 1, "files": {"a.csv": "12:1700000000000000000"}})),
            lambda s: s.put("epoch=1/a.csv"),
        ],
        None,
    ),
    "files of a land without its manifest": (
        [lambda s: s.land("src,dst\n1,2\n"), lambda s: filesystem.delete_file(f"{s.base}/epoch=1/_SUCCESS")],
        "an altneu land has not finished it",
    ),
    "a file of a land that somebody removed": (
        [
            lambda s: s.land("src,dst\n1,2\n"),
            lambda s: [filesystem.delete_file(f"{s.base}/{n}") for n in s.names() if "land-" in n],
        ],
        "000-raw.csv, which its _SUCCESS names, does not exist",
    ),
    "a journal": (
        [
            lambda s: s.land("src,dst\n1,2\n"),
            lambda s: s.put("_work/0.json", json.dumps({"host": "h", "home": "/", "before": {"1": None}})),
        ],
        "is placing it now, or was interrupted",
    ),
}


@pytest.mark.parametrize("case", OTHERS)
def test_what_counts_as_a_batch(scene: Scene, case: str) -> None:
    done, why = OTHERS[case]
    for each in done:
        each(scene)
    found = scene.why()
    assert (found is None) == (why is None) and (why or "") in (found or ""), found
    says = dag_epochs.check_landing(
        str(scene.home.path), 1, patience=dag_epochs.timedelta(1), manual=False
    )  # what the sensor asks
    assert says.state == ("landed" if why is None else "waiting"), says
    if case == "no marker":  # where it is asked for, time says it
        (scene.home.path / "altneu.toml").write_text(f'[landing]\nuri = "{scene.base}"\n[ingest]\nsettle = 60\n')
        assert scene.why() is None  # the clock of tests is an hour ahead
    if case == "a land over what others put":
        assert scene.seen() == {"1": ["1,2"]} and not {name for name in scene.names() if "z.csv" in name}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("epoch=tomorrow/a.csv", "rename or remove"),
        ("epoch=1/notes.doc", "remove it"),
        ("epoch=1/b/a.csv", "remove it"),
    ],
)
def test_what_is_nothing(scene: Scene, name: str, text: str) -> None:
    scene.put(name)
    with pytest.raises(AltneuError) as caught:
        landing.list_batches(scene.home)
    assert caught.value.next and text in caught.value.next and f"landing/{name.split('/')[0]}" in caught.value.what


def test_a_store_that_stumbles(scene: Scene) -> None:
    """503s and broken connections at one of five calls, slow lists, half answers: the same in the end."""
    count = 0

    def faults(method: str, path: str) -> str | None:
        nonlocal count
        count += 1
        slow = "0.2" if "list-type" in path else None
        return {0: "503", 5: "cut", 8: "half" if method == "GET" and ".csv" in path else None}.get(count % 10, slow)

    scene.store.faults = faults
    scene.land("src,dst\n" + "1,2\n" * 5_000)
    scene.land("src,dst\n3,4\n", epoch=2)
    assert scene.seen() == {"1": ["1,2"] * 5_000, "2": ["3,4"]}
    assert count > 10


def test_a_store_that_goes_on_stumbling(scene: Scene) -> None:
    """A process that lives long does not use up its tries: hundreds of failures, each followed by a success."""
    scene.put("epoch=1/a.csv")
    count = 0

    def faults(method: str, path: str) -> str | None:
        nonlocal count
        count += 1
        return "503" if count % 3 == 0 else None

    scene.store.faults = faults
    for _ in range(4):
        assert (
            filesystem.map_parallel(filesystem.read_file, [f"{scene.base}/epoch=1/a.csv"] * 40)
            == [b"src,dst\n1,2\n"] * 40
        )
    assert count > 400


@pytest.mark.parametrize("size", [24, pytest.param(100, marks=pytest.mark.slow)])
def test_a_large_batch_is_uploaded_in_parts(scene: Scene, size: int) -> None:
    """With parts that are refused, cut off or whose answer is lost: the batch is whole. With parts that never arrive:
    the former batch stays."""
    lines = size * (1 << 20) // 24
    text = "src,dst\n" + "".join(f"{11_111_111_111 + at},22222222222\n" for at in range(lines))
    count = 0

    def faults(method: str, path: str) -> str | None:
        nonlocal count
        count += "partNumber=" in path or "uploads" in path
        return {1: "503", 3: "cut", 5: "lost"}.get(count % 7) if "partNumber=" in path else None

    scene.store.faults = faults
    scene.land(text)
    assert count > size // 10
    file = landing.list_batches(scene.home)[1].files[0]
    with filesystem.open_stream(file.location) as stream:
        assert stream.read().partition(b"\n")[2] == scene.raw.read_bytes().partition(b"\n")[2]

    scene.store.faults = lambda method, path: "403" if "partNumber=2" in path else None
    with pytest.raises(Unavailable, match=r"\[landing\] uri = s3://.*(ACCESS_DENIED|Access Denied)"):
        scene.land(text + "1,2\n")
    scene.store.faults = lambda method, path: None
    assert landing.list_batches(scene.home)[1].files == (file,)
    scene.land(text + "1,2\n")
    assert landing.list_batches(scene.home)[1].sealed == lines + 1
    assert len([name for name in scene.names() if "epoch=1/land-" in name]) == 1


@pytest.mark.parametrize("fault", ["503", "cut"])
def test_a_store_that_does_not_answer(scene: Scene, fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filesystem, "TRIES", 2)
    filesystem._s3_filesystem.cache_clear()
    scene.land("src,dst\n1,2\n")
    for wrong in ("epoch=2/land-", "_work/", "epoch=2/_SUCCESS", "list-type"):
        scene.store.faults = lambda method, path, wrong=wrong: fault if wrong in unquote(path) else None  # type: ignore[misc]
        with pytest.raises(Unavailable) as caught:
            scene.land("src,dst\n3,4\n", epoch=2)
        assert f"[landing] uri = {scene.base}: " in caught.value.what and caught.value.transient
        assert os.environ["AWS_SECRET_ACCESS_KEY"] not in caught.value.what
        scene.store.faults = lambda method, path: None
        assert scene.seen() == {"1": ["1,2"]}
    scene.land("src,dst\n3,4\n", epoch=2)
    assert scene.seen() == {"1": ["1,2"], "2": ["3,4"]} and not {name for name in scene.names() if "_work" in name}
    filesystem._s3_filesystem.cache_clear()


def test_a_bucket_that_is_not_there(scene: Scene) -> None:
    """It is not taken for an empty landing: all that is published would be `gone`."""
    (scene.home.path / "altneu.toml").write_text('[landing]\nuri = "s3://no-such-bucket/landing"\n')
    with pytest.raises(Unavailable, match="no-such-bucket"):
        landing.list_batches(Home.open(scene.home.path))


KILLED = {  # at which request the process dies → what is there afterwards
    "PUT epoch=1970-01-02/land-": "before",
    "PUT _work/": "before",
    "PUT epoch=1970-01-03/_SUCCESS": "between",
    "DELETE _work/": "between",
    "DELETE epoch=1970-01-02/land-": "after",
}


@pytest.mark.parametrize("moment", KILLED)
def test_killed(scene: Scene, moment: str) -> None:
    """kill -9 of a land of two epochs, which have landed before: no run ever reads one new and one old batch, and the
    next land puts all right."""
    toml = scene.home.path / "altneu.toml"
    toml.write_text(toml.read_text() + EVERY)
    raw = scene.raw
    raw.write_text(f"src,dst,ts\n1,2,{DAY}\n1,3,{2 * DAY}\n")
    options = LandOptions(time_column="ts", time_unit="s")
    landing.land(Home.open(scene.home.path), [raw], options)
    old, settings = scene.seen(), toml.read_text()
    raw.write_text(f"src,dst,weight,ts\n5,6,1,{DAY}\n5,7,2,{2 * DAY}\n")
    words = ["land", str(raw), "--time", "ts", "--time-unit", "s"]
    process = subprocess.Popen([sys.executable, "-m", "altneu.pipeline.cli", "--home", str(scene.home.path), *words])
    method, part = moment.split()

    def kill(by: str, path: str) -> str | None:
        if by == method and part in unquote(path):
            process.send_signal(signal.SIGKILL)
            process.wait()
            return "cut"
        return None

    scene.store.faults = kill
    assert process.wait(120) == -signal.SIGKILL
    scene.store.faults = lambda method, path: None
    new = {"1970-01-02": ["5,6,1,86400000000"], "1970-01-03": ["5,7,2,172800000000"]}
    assert scene.seen() == {"before": old, "between": {}, "after": new}[KILLED[moment]]
    # another epoch's land takes back what is half done
    raw.write_text(f"src,dst,ts\n8,9,{5 * DAY}\n")
    landing.land(Home.open(scene.home.path), [raw], options)
    seen = scene.seen()
    assert seen.pop("1970-01-06") == ["8,9,432000000000"]
    assert seen == (new if KILLED[moment] == "after" else old)
    if KILLED[moment] != "after":
        assert toml.read_text() == settings, "the new value column is not declared"


def test_another_machine_is_placing(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.land("src,dst\n1,2\n")
    scene.put("_work/0.json", json.dumps({"host": "other", "home": "/there", "before": {"1": None}}))
    monkeypatch.setattr(batch_files, "clock", time.time)
    with pytest.raises(AltneuError, match="another altneu land, of /there on other, is placing"):
        scene.land("src,dst\n3,4\n", epoch=2)
    assert scene.why() and "interrupted" in (scene.why() or "")
    monkeypatch.setattr(batch_files, "clock", lambda: time.time() + object_store_landing.ALIVE + 1)
    scene.land("src,dst\n3,4\n", epoch=2)
    assert (
        scene.seen() == {"2": ["3,4"]}
        and scene.why() == "an altneu land has not finished it: no _SUCCESS names its files"
    )
