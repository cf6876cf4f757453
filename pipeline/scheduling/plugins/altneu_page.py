"""The timetable of the DAGs, and a page inside Airflow: the grid of epochs, the trend of the totals, audits, and links
to reports and runs.

The reports are made on request, from the same templates as the files: they show what is so now, also where a run has
failed, and need no disk shared with the tasks. All of it reads the home's SQL database and the landing's listing; it
starts no Spark. Behind Airflow's login: without a session, 401. `ALTNEU_HOME` says which home. An error of the home is
shown as a page of its own, with what to type.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import quote

from airflow.api_fastapi.core_api.security import get_user
from airflow.models import DagRun
from airflow.plugins_manager import AirflowPlugin
from airflow.utils.session import create_session
from fastapi import Depends, FastAPI, HTTPException
from fastapi.responses import FileResponse, HTMLResponse
from sqlalchemy import select

from pipeline.errors import AltneuError
from pipeline.home.directory import Home
from pipeline.scheduling.timetable import Bounded
from pipeline.tasks import base, web

SHOWN = 400  # epochs, the newest

app = FastAPI(title="altneu", dependencies=[Depends(get_user)], docs_url=None, redoc_url=None, openapi_url=None)


@app.get("/", response_class=HTMLResponse)
def page() -> HTMLResponse:
    try:
        return HTMLResponse(document(web.grid(base.home_path()), dag_runs()))
    except AltneuError as error:
        return HTMLResponse(_whole(f"<p class=bad>{escape(base.worded(error))}</p>"), 503)


@app.get("/reports/{name}", response_class=HTMLResponse)
def report(name: str) -> HTMLResponse:
    """The index, or the page of an epoch that was landed, run or published."""
    try:
        text = web.report_page(base.home_path(), name)
    except AltneuError as error:
        return HTMLResponse(_whole(f"<p class=bad>{escape(base.worded(error))}</p>"), 503)
    if text is None:
        raise HTTPException(404, "there is no such report")
    return HTMLResponse(text)


@app.get("/reports/data-docs/{epoch}/{name}")
def data_docs(epoch: str, name: str) -> FileResponse:
    """Great Expectations' pages: files, where somebody has asked for them (`altneu report --data-docs`)."""
    folder = Path(base.home_path()).resolve() / "reports" / "data-docs"
    file = (folder / epoch / name).resolve()
    if file.parent.parent != folder or file.suffix != ".html" or not file.is_file():
        raise HTTPException(404, "there is no such page")
    return FileResponse(file, media_type="text/html")


def dag_runs() -> dict[int, str]:
    """Epoch → id of the run of `altneu_epoch` whose logical date starts it, in Airflow's database."""
    schedule = Home.open(base.home_path()).schedule
    if schedule.seconds is None:
        return {}
    with create_session() as session:
        query = select(DagRun.logical_date, DagRun.run_id).where(DagRun.dag_id == "altneu_epoch")
        found = [(schedule.epoch_of(date), date, run_id) for date, run_id in session.execute(query) if date]
    return {epoch: run_id for epoch, date, run_id in found if schedule.start(epoch) == date}


def document(found: dict[str, Any], runs: Mapping[int, str] = MappingProxyType({})) -> str:
    """The page of what `web.grid` found, with links to the epochs' runs; every text of it is escaped."""
    rows = found["epochs"][-SHOWN:]
    head = f"<p>{escape(found['says'])} · <a href=reports/index.html>all reports</a></p>"
    cells = "".join(
        f'<a class="cell {escape(row["state"])}" href="#e{row["epoch"]}" title="{escape(_title(row))}"></a>'
        for row in rows
    )
    legend = "".join(
        f'<span><i class="cell {s}"></i>{s}</span>'
        for s in ("published", "missing", "changed", "running", "failed", "gone", "folded", "incomplete")
    )
    series = {title: [row[name] for row in rows] for title, name in _TRENDS.items()}
    motifs = dict.fromkeys(name for row in rows for name in row["motifs"])
    series |= {f"motif {name}": [row["motifs"].get(name) for row in rows] for name in motifs}
    trends = "".join(_trend(title, values) for title, values in series.items())
    table = "".join(_row(row, runs.get(row["epoch"])) for row in reversed(rows))
    titles = "".join(
        f"<th{' class=n' if t in ('revision', 'edges', 'triangles', 'trussness') else ''}>{t}</th>"
        for t in ("epoch", "state", "revision", "edges", "triangles", "trussness", "audit", "")
    )
    return _whole(
        f"{head}<div class=grid>{cells}</div><div class=legend>{legend}</div><div class=trends>{trends}</div>"
        f"<table><thead><tr>{titles}</tr></thead><tbody>{table}</tbody></table>"
    )


def _title(row: dict[str, Any]) -> str:
    return f"{row['label']}: {row['state']}" + (f", {row['error']}" if row["error"] else "")


def _row(row: dict[str, Any], run: str | None) -> str:
    audit = escape(row["audit"] or "")
    audit = f"<b class=bad>{audit}</b>" if row["audited"] is False else audit
    links = [f'<a href="reports/{escape(row["report"])}">report</a>']
    where = f"/dags/altneu_epoch/runs/{quote(run, safe='')}" if run else "/dags/altneu_epoch/runs"
    links.append(f'<a href="{where}" target=_top>{"run" if run else "runs"}</a>')
    numbers = "".join(
        f"<td class=n>{'' if row[name] is None else format(row[name], ',')}</td>"
        for name in ("revision", "edges", "triangles", "max_trussness")
    )
    error = f"<div class=bad>{escape(row['error'])}</div>" if row["error"] else ""
    return (
        f'<tr id="e{row["epoch"]}"><td>{escape(row["label"])}</td>'
        f'<td><i class="cell {escape(row["state"])}"></i>{escape(row["state"])}{error}</td>{numbers}'
        f"<td>{audit}</td><td>{' · '.join(links)}</td></tr>"
    )


_TRENDS = {"edges": "edges", "triangles": "triangles", "greatest trussness": "max_trussness"}


def _trend(title: str, found: list[int | None]) -> str:
    values = [value for value in found if value is not None]
    if not values:
        return ""
    top, step = max(values) or 1, 240 / max(1, len(values) - 1)
    points = " ".join(f"{i * step:.1f},{48 - 44 * value / top:.1f}" for i, value in enumerate(values))
    title = escape(title)
    return (
        f"<figure><figcaption>{title}: <b>{values[-1]:,}</b> (most {top:,})</figcaption>"
        f'<svg viewBox="0 0 240 52" role=img aria-label="{title}"><polyline '
        f'points="{points}"/></svg></figure>'
    )


def _whole(body: str) -> str:
    # Airflow's frame may neither open windows nor lead away from itself: a link of the page around it does
    return f"""<!doctype html><html lang=en><meta charset=utf-8><title>altneu</title><style>
:root{{color-scheme:light dark;font:14px/1.5 system-ui,sans-serif}} body{{margin:24px;max-width:1100px}}
.grid{{display:flex;flex-wrap:wrap;gap:3px}}
.cell{{width:14px;height:14px;border-radius:3px;background:#9aa;display:inline-block}}
td .cell,.legend .cell{{width:10px;height:10px;margin-right:6px}}
.published{{background:#2a9d6a}} .changed{{background:#d9a400}}
.missing{{background:#8aa4c8}} .running{{background:#3f7fd9}}
.folded,.incomplete{{background:#b9b9b9}} .failed{{background:#d04545}}
.legend{{display:flex;gap:16px;margin:8px 0 20px}}
.trends{{display:flex;gap:24px;flex-wrap:wrap}} figure{{margin:0 0 16px}} svg{{width:240px;height:52px}}
polyline{{fill:none;stroke:#2a7fd0;stroke-width:1.5}} table{{border-collapse:collapse;width:100%}}
th,td{{text-align:left;padding:4px 10px;border-bottom:1px solid #8884}}
th.n,td.n{{text-align:right;font-variant-numeric:tabular-nums}}
.bad{{color:#d04545;white-space:pre-wrap}}
</style><h1>altneu</h1>{body}<script>
document.addEventListener("click", event => {{
  const link = event.target.closest("a[target=_top]");
  if (!link || parent === window) return;
  event.preventDefault();
  const outside = parent.document.createElement("a");
  outside.href = link.href;
  outside.click();
}});
</script></html>"""


# the timetable under the path that it once had: DAGs that an older version has serialised still load
_BEFORE = type("Bounded", (Bounded,), {"__module__": "dags.timetable"})


class AltneuPage(AirflowPlugin):
    """The page as a sub-application, its entry in the navigation, and the timetable."""

    name = "altneu"
    timetables = [Bounded, _BEFORE]  # noqa: RUF012
    fastapi_apps = [{"app": app, "url_prefix": "/altneu", "name": "altneu"}]  # noqa: RUF012
    external_views = [  # noqa: RUF012
        {"name": "Epochs", "href": "/altneu/", "destination": "nav", "url_route": "altneu-epochs"}
    ]
