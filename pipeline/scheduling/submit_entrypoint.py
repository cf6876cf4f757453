"""The script that `spark-submit` runs for a task of the DAGs: `submit_entrypoint.py HOME TASK PLANNED ANSWER`.

PLANNED is JSON; the result of the task, or its error, is written to the file ANSWER. The master and the resources are
those of the submission.
"""

import sys

if __name__ == "__main__":
    from altneu.pipeline.tasks.run_tasks import run_submitted

    sys.exit(run_submitted(*sys.argv[1:]))
