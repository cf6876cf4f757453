"""The timetable of the DAGs, and a page inside Airflow: the reports' index, with links to the epochs' runs.

It is made on request from the templates of the reports, and so are the pages of the epochs: they show what is so now,
also where a run has failed, and need no disk shared with the tasks. All of it reads the home's SQL database and the
landing's listing; it starts no Spark. Behind Airflow's login: without a session, 401. `ALTNEU_HOME` says which home. An
error of the home is a page of its own, with what to type.
"""

from __future__ import annotations

from pathlib import Path
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

app = FastAPI(title="altneu", dependencies=[Depends(get_user)], docs_url=None, redoc_url=None, openapi_url=None)


@app.get("/", response_class=HTMLResponse)
def page() -> HTMLResponse:
    try:
        return HTMLResponse(web.overview_page(base.home_path(), dag_runs()))
    except AltneuError as error:
        return HTMLResponse(web.error_page(error), 503)


@app.get("/reports/{name}", response_class=HTMLResponse)
def report(name: str) -> HTMLResponse:
    """The index, or the page of an epoch that was landed, run or published."""
    try:
        text = web.report_page(base.home_path(), name)
    except AltneuError as error:
        return HTMLResponse(web.error_page(error), 503)
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
    """Epoch → the address of the run of `altneu_epoch` whose logical date starts it, from Airflow's database."""
    schedule = Home.open(base.home_path()).schedule
    if schedule.seconds is None:
        return {}
    with create_session() as session:
        query = select(DagRun.logical_date, DagRun.run_id).where(DagRun.dag_id == "altneu_epoch")
        found = [(schedule.epoch_of(date), date, run_id) for date, run_id in session.execute(query) if date]
    runs = {epoch: run_id for epoch, date, run_id in found if schedule.start(epoch) == date}
    return {epoch: f"/dags/altneu_epoch/runs/{quote(run_id, safe='')}" for epoch, run_id in runs.items()}


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
