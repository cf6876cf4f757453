"""The one thing that pyproject.toml cannot say: the wheel holds the folder `dags/` as `pipeline/scheduling/dags/`.

So Airflow's files come with the wheel, and no package `dags` stands at the top of an environment.
"""

from setuptools import find_namespace_packages, setup

ROOMS = find_namespace_packages(include=["algorithms*", "expectations*", "pipeline*"], exclude=["*.__pycache__"])
DAGS = "pipeline.scheduling.dags"

setup(packages=[*ROOMS, DAGS], package_dir={DAGS: "dags"})
