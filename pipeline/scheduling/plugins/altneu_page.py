"""The timetable of the DAGs, and a page inside Airflow: the reports' index, with the epochs' runs and what to do next.

It is made on request from the templates of the reports, and so are the pages of the epochs: they show what is so now,
also where a run has failed, and need no disk shared with the tasks. All of it reads the home's SQL database and the
landing's listing; it starts no Spark. Who may read the DAG `<prefix>_epoch` may read the page of its home; its buttons
are for those who may trigger that home's DAGs, and call Airflow's own API as them. An error of the home is a page of
its own, with what to type.
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

from pipeline.errors import AltneuError, UsageError
from pipeline.home.home import Home
from pipeline.scheduling.sites import FILES
from pipeline.scheduling.timetable import Epochs
from pipeline.tasks import airflow_page, base

app = FastAPI(title="altneu", dependencies=[Depends(get_user)], docs_url=None, redoc_url=None, openapi_url=None)
router = APIRouter()
User = Annotated[Any, Depends(get_user)]
WAITING = ("queued", "running")


def may(user: Any, prefix: str, name: str, method: Any = "GET", entity: DagAccessEntity | None = None) -> bool:
    """Whether a user of Airflow may read a DAG of a home, or with POST on its runs: trigger it."""
    dag = f"{prefix}_{name}"
    details = DagDetails(id=dag, team_name=DagModel.get_team_name(dag))
    return bool(get_auth_manager().is_authorized_dag(method=method, access_entity=entity, details=details, user=user))


def may_run(user: Any, prefix: str) -> bool:
    return may(user, prefix, "backfill", "POST", DagAccessEntity.RUN)


def readable(request: Request, user: User) -> str:
    """The prefix in the address, of a home that this user may see."""
    return checked(user, request.path_params.get("prefix", base.PREFIX))


def checked(user: Any, prefix: str) -> str:
    if not may(user, prefix, "epoch"):
        raise HTTPException(403, "Forbidden")
    return prefix


Prefix = Annotated[str, Depends(readable)]


def home_of(prefix: str) -> str:
    """The home of the DAGs with a prefix: as Airflow has stored them, of `altneu` as the environment says."""
    if prefix == base.PREFIX:
        return base.home_path()
    with create_session() as session:
        dag = DBDagBag(load_op_links=False).get_latest_version_of_dag(f"{prefix}_epoch", session=session)
    if dag is None or not dag.has_task("landed"):
        raise HTTPException(404, "there is no such home")
    return str(getattr(dag.get_task("landed"), "home"))  # noqa: B009


def sites() -> list[str]:
    """The prefixes of all homes whose DAGs this Airflow has."""
    with create_session() as session:
        mine = DagModel.tags.any(name="altneu") & DagModel.dag_id.endswith("_epoch") & ~DagModel.is_stale
        found = session.scalars(select(DagModel.dag_id).where(mine).order_by(DagModel.dag_id))
        return [dag.removesuffix("_epoch") for dag in found]


@router.get("/", response_class=HTMLResponse)
def page(user: User, prefix: Prefix = base.PREFIX) -> HTMLResponse:
    root = "../" if prefix == base.PREFIX else "../../../"
    others = [each for each in sites() if each != prefix and may(user, each, "epoch")]
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
    """The index, or the page of an epoch that was landed, run or published."""
    try:
        text = airflow_page.report_page(home_of(prefix), name)
    except AltneuError as error:
        return HTMLResponse(airflow_page.error_page(error), 503)
    if text is None:
        raise HTTPException(404, "there is no such report")
    return HTMLResponse(text)


@router.get("/reports/data-docs/{epoch}/{name}")
def data_docs(epoch: str, name: str, prefix: Prefix = base.PREFIX) -> HTMLResponse:
    """Great Expectations' pages: files, where somebody has asked for them (`altneu report --data-docs`)."""
    return report(f"data-docs/{epoch}/{name}", prefix)


class Said(BaseModel):
    """What a person says of an incident; with `until`, a day, it is muted."""

    because: str
    until: str | None = None


@router.post("/incidents/{ident}")
def say(ident: str, said: Said, request: Request, user: User, prefix: Prefix = base.PREFIX) -> dict[str, str]:
    """Acknowledge an incident, or mute it, by the name of the user. JSON alone: no form of another site can send it."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise HTTPException(415, "JSON, please")
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
    """From a run, or a task of it, to the page of its epoch; of a run over many to the index."""
    prefix = next((each for each in sites() for name in FILES if dag_id == f"{each}_{name}"), None)
    if prefix is None:
        raise HTTPException(404, f"{dag_id} is no DAG of altneu")
    checked(user, prefix)
    place = "" if prefix == base.PREFIX else f"homes/{prefix}/"
    label = label_of(dag_id, run_id, prefix)
    page = f"reports/epoch={quote(label)}.html" if label else ""
    return RedirectResponse(f"{request.scope.get('root_path', '')}/{place}{page}")


def label_of(dag_id: str, run_id: str, prefix: str) -> str | None:
    """The label of the last epoch of a run, by what its tasks have handed over; None: it has none yet."""
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
    """Epoch → the run of `<prefix>_epoch` whose logical date starts it, from Airflow's database."""
    schedule = Home.open(home).schedule
    if schedule.seconds is None:
        return {}
    with create_session() as session:
        query = select(DagRun.logical_date, DagRun.run_id, DagRun.state).where(DagRun.dag_id == f"{prefix}_epoch")
        found = [
            (schedule.epoch_of(date), date, run_id, state) for date, run_id, state in session.execute(query) if date
        ]
    return {
        epoch: {"run_id": run_id, "waits": state in WAITING}
        for epoch, date, run_id, state in found
        if schedule.start_of(epoch) == date
    }


app.include_router(router)
app.include_router(router, prefix="/homes/{prefix}")

# the timetable under the names that it once had: DAGs that an older version has serialised still load
_BEFORE = [
    type("Bounded", (Epochs,), {"__module__": module}) for module in ("dags.timetable", "pipeline.scheduling.timetable")
]


class AltneuPage(AirflowPlugin):
    """The page as a sub-application, its entry in the navigation, a tab of runs and of tasks, and the timetable."""

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
