"""The store of the report pages: the folder `reports` of the home, or the place in `[reports] uri`.

That place may be in an object store. A page is a file that links its neighbours by their names, so that the pages can
be read from either. On this machine a file is replaced as a whole at once. Into an object store the pages are sent
together by `flush_pages`. Errors of an object store become an `Unavailable` that names the setting.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from ..errors import Unavailable
from ..home.home import Home
from ..home.whole_files import open_whole_file
from ..state import filesystem


class PageStore:
    """The files in the folder of the reports, by their paths below it."""

    def __init__(self, home: Home) -> None:
        self.home, self._local = home, None if home.reports_remotely else home.reports
        self._stamps = self._list_files()
        self._pages_to_write: dict[str, str] = {}

    def _list_files(self) -> dict[str, int]:
        if self._local is not None:  # Arrow is slow to import
            return dict(_list_folder(self._local)) if self._local.exists() else {}
        with self._translate_store_errors():
            return {
                name: round(info.modified_at * 1e9)
                for name, info in filesystem.list_files(self.home.reports_at).items()
            }

    def list_names(self) -> Iterable[str]:
        return list(self._stamps)

    def __contains__(self, name: str) -> bool:
        return name in self._stamps

    def written_at(self, name: str) -> int:
        """Return when a page was written, in nanoseconds since 1970, or 0 for a page that has not been sent yet."""
        return self._stamps[name]

    def page_location(self, name: str) -> str:
        """Return the path or the URI of a page."""
        return f"{self.home.reports_at}/{name}"

    def read_page(self, name: str) -> str | None:
        """Return the text of a page, or None where it does not exist."""
        if name not in self._stamps:
            return None
        with self._translate_store_errors():
            try:
                return filesystem.read_file(self.page_location(name)).decode("utf-8")
            except FileNotFoundError:
                return None

    def put_page(self, name: str, text: str) -> None:
        """Write a page, as a whole or not at all."""
        if self._local is None:
            self._pages_to_write[name], self._stamps[name] = text, 0
            return
        path = self._local / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with open_whole_file(path, synced=False) as stream:  # a lost page can be written again
            stream.write(text.encode("utf-8"))
        self._stamps[name] = path.stat().st_mtime_ns

    def delete_page(self, name: str) -> None:
        with self._translate_store_errors():
            filesystem.delete_file(self.page_location(name))
        self._stamps.pop(name, None)

    def flush_pages(self) -> None:
        """Send the pages that were put, and read their times."""
        if not self._pages_to_write:
            return
        with self._translate_store_errors():
            filesystem.map_parallel(
                lambda name: filesystem.write_file(self.page_location(name), self._pages_to_write[name].encode()),
                self._pages_to_write,
            )
        self._pages_to_write.clear()
        self._stamps = self._list_files()

    @contextlib.contextmanager
    def _translate_store_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if self._local is not None:
                raise
            raise Unavailable(
                f"[reports] uri = {self.home.reports_at}: {filesystem.format_store_error(error)}.",
                "altneu doctor; when the store answers: altneu report   (writes the pages that have changed)",
            ) from error


def _list_folder(folder: Path | str, prefix: str = "") -> Iterator[tuple[str, int]]:
    """Yield the files below a folder: their paths below it, with the time of their last change in nanoseconds."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _list_folder(entry.path, f"{prefix}{entry.name}/")
            elif entry.is_file():
                yield prefix + entry.name, entry.stat().st_mtime_ns
