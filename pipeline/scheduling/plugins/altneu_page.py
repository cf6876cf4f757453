"""The Airflow plugin: the timetable of the DAGs, and a page with the index of the reports, the runs and what to do
next.

The page and the pages of the epochs are made on request from the templates of the reports: they show the current state,
even after a failed run, and need no disk shared with the tasks. They read the home's SQL database and the listing of
the landing, and start no Spark. A user who may read the DAG `<prefix>_epoch` may read the page of its home; the buttons
are for users who may trigger the DAGs of that home, and call Airflow's own API as that user. An error of the home is
shown as a page with the command to type.
"""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import quote

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails
from airflow.api_fastapi.core_api.security import get_user
from airflow.models import DagRun
from airflow.models.dag import DagModel
from airflow.models.dagbag import DBDagBag
from airflow.models.xcom import XComModel
from airflow.plugins_manager import AirflowPlugin
from airflow.utils.session import create_session
from fastapi import APIRouter, Depends, FastAPI, HTTPException, Request
from fastapi.responses import HTMLResponse, RedirectResponse
from pydantic import BaseModel
from sqlalchemy import select

from altneu.pipeline.errors import AltneuError, UsageError
from altneu.pipeline.home.home import Home
from altneu.pipeline.scheduling.sites import FILES
from altneu.pipeline.scheduling.timetable import Epochs
from altneu.pipeline.tasks import airflow_page, base

app = FastAPI(title="altneu", dependencies=[Depends(get_user)], docs_url=None, redoc_url=None, openapi_url=None)
router = APIRouter()
User = Annotated[Any, Depends(get_user)]
WAITING = ("queued", "running")


def may(user: Any, prefix: str, name: str, method: Any = "GET", entity: DagAccessEntity | None = None) -> bool:
    """Tell whether a user of Airflow may read a DAG of a home, or trigger it (with the method POST on its runs)."""
    dag = f"{prefix}_{name}"
    details = DagDetails(id=dag, team_name=DagModel.get_team_name(dag))
    return bool(get_auth_manager().is_authorized_dag(method=method, access_entity=entity, details=details, user=user))


def may_run(user: Any, prefix: str) -> bool:
    return may(user, prefix, "backfill", "POST", DagAccessEntity.RUN)


def readable(request: Request, user: User) -> str:
    """Return the prefix in the address, if the user may see its home."""
    return checked(user, request.path_params.get("prefix", base.PREFIX))


def checked(user: Any, prefix: str) -> str:
    if not may(user, prefix, "epoch"):
        raise HTTPException(403, "Forbidden")
    return prefix


Prefix = Annotated[str, Depends(readable)]


def home_of(prefix: str) -> str:
    """Return the home of the DAGs with a prefix, from the DAGs that Airflow has stored; of `altneu` from the
    environment."""
    if prefix == base.PREFIX:
        return base.home_path()
    with create_session() as session:
        dag = DBDagBag(load_op_links=False).get_latest_version_of_dag(f"{prefix}_epoch", session=session)
    if dag is None or not dag.has_task("landed"):
        raise HTTPException(404, "there is no such home")
    return str(getattr(dag.get_task("landed"), "home"))  # noqa: B009


def sites() -> list[str]:
    """Return the prefixes of all homes whose DAGs this Airflow has."""
    with create_session() as session:
        mine = DagModel.tags.any(name="altneu") & DagModel.dag_id.endswith("_epoch") & ~DagModel.is_stale
        dag_ids = session.scalars(select(DagModel.dag_id).where(mine).order_by(DagModel.dag_id))
        return [dag_id.removesuffix("_epoch") for dag_id in dag_ids]


@router.get("/", response_class=HTMLResponse)
def page(user: User, prefix: Prefix = base.PREFIX) -> HTMLResponse:
    root = "../" if prefix == base.PREFIX else "../../../"
    others = [other for other in sites() if other != prefix and may(user, other, "epoch")]
    try:
        home = home_of(prefix)
        return HTMLResponse(
            airflow_page.overview_page(
                home, dag_runs(home, prefix), prefix, root, may_run=may_run(user, prefix), sites=others
            )
        )
    except AltneuError as error:
        return HTMLResponse(airflow_page.error_page(error), 503)


@router.get("/reports/{name}", response_class=HTMLResponse)
def report(name: str, prefix: Prefix = base.PREFIX) -> HTMLResponse:
    """Return the index, or the page of an epoch that was landed, run or published."""
    try:
        text = airflow_page.report_page(home_of(prefix), name)
    except AltneuError as error:
        return HTMLResponse(airflow_page.error_page(error), 503)
    if text is None:
        raise HTTPException(404, "there is no such report")
    return HTMLResponse(text)


@router.get("/reports/data-docs/{epoch}/{name}")
def data_docs(epoch: str, name: str, prefix: Prefix = base.PREFIX) -> HTMLResponse:
    """Return a page of Great Expectations; the files exist after `altneu report --data-docs`."""
    return report(f"data-docs/{epoch}/{name}", prefix)


class Said(BaseModel):
    """What a person says about an incident; with the day `until`, the incident is muted."""

    because: str
    until: str | None = None


@router.post("/incidents/{ident}")
def say(ident: str, said: Said, request: Request, user: User, prefix: Prefix = base.PREFIX) -> dict[str, str]:
    """Acknowledge or mute an incident in the name of the user.

    It takes JSON only, so that no form of another site can send it.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise HTTPException(415, "the request has to be application/json")
    if not may_run(user, prefix):
        raise HTTPException(403, "Forbidden")
    try:
        home, by = home_of(prefix), str(user.get_name())
        if said.until:
            airflow_page.mute_incident(home, ident, said.until, by, said.because)
        else:
            airflow_page.acknowledge_incident(home, ident, by, said.because)
    except UsageError as error:
        raise HTTPException(422, error.what) from error
    except AltneuError as error:
        raise HTTPException(503, error.what) from error
    return {"incident": ident, "by": by}


@app.get("/runs/{dag_id}/{run_id:path}")
def of_run(dag_id: str, run_id: str, user: User, request: Request) -> RedirectResponse:
    """Redirect from a run or a task to the page of its epoch; from a run over many epochs to the index."""
    prefix = next((site for site in sites() for name in FILES if dag_id == f"{site}_{name}"), None)
    if prefix is None:
        raise HTTPException(404, f"{dag_id} is not a DAG of altneu")
    checked(user, prefix)
    place = "" if prefix == base.PREFIX else f"homes/{prefix}/"
    label = label_of(dag_id, run_id, prefix)
    page = f"reports/epoch={quote(label)}.html" if label else ""
    return RedirectResponse(f"{request.scope.get('root_path', '')}/{place}{page}")


def label_of(dag_id: str, run_id: str, prefix: str) -> str | None:
    """Return the label of the last epoch of a run, from the results of its tasks, or None if it has none yet."""
    query = select(XComModel.task_id, XComModel.value).where(
        XComModel.dag_id == dag_id, XComModel.run_id == run_id, XComModel.key == "return_value"
    )
    with create_session() as session:
        handed = {row.task_id: XComModel.deserialize_value(row) for row in session.execute(query)}
    if isinstance(handed.get("landed"), int):
        return Home.open(home_of(prefix)).schedule.format_label(handed["landed"])
    planned = handed.get("plan")
    return base.last_label(planned) if isinstance(planned, dict) else None


def dag_runs(home: str, prefix: str) -> dict[int, airflow_page.AirflowRun]:
    """Return the runs of `<prefix>_epoch` by the epoch that their logical date starts, from Airflow's database."""
    schedule = Home.open(home).schedule
    if schedule.seconds is None:
        return {}
    with create_session() as session:
        query = select(DagRun.logical_date, DagRun.run_id, DagRun.state).where(DagRun.dag_id == f"{prefix}_epoch")
        runs = [
            (schedule.epoch_of(date), date, run_id, state) for date, run_id, state in session.execute(query) if date
        ]
    return {
        epoch: {"run_id": run_id, "waits": state in WAITING}
        for epoch, date, run_id, state in runs
        if schedule.start_of(epoch) == date
    }


app.include_router(router)
app.include_router(router, prefix="/homes/{prefix}")

# the timetable under its former names, so that DAGs that an older version has serialised still load
_BEFORE = [
    type(name, (Epochs,), {"__module__": module})
    for module, name in (
        ("dags.timetable", "Bounded"),
        ("pipeline.scheduling.timetable", "Bounded"),
        ("pipeline.scheduling.timetable", "Epochs"),
    )
]


class AltneuPage(AirflowPlugin):
    """The plugin: the page as a sub-application, its entry in the navigation, a tab of runs and tasks, and the
    timetable."""

    name = "altneu"
    timetables = [Epochs, *_BEFORE]  # noqa: RUF012
    fastapi_apps = [{"app": app, "url_prefix": "/altneu", "name": "altneu"}]  # noqa: RUF012
    external_views = [  # noqa: RUF012
        {"name": "Epochs", "href": "/altneu/", "destination": "nav", "url_route": "altneu-epochs"},
        *(
            {
                "name": "Report",
                "href": "/altneu/runs/{DAG_ID}/{RUN_ID}",
                "destination": destination,
                "url_route": f"altneu-{destination.replace('_', '-')}",
            }
            for destination in ("dag_run", "task_instance")
        ),
    ]
