"""What `spark-submit` runs for a task of the DAGs: one stage of a run. `stage.py HOME STAGE PLANNED`, as JSON.

The master and the resources are those of the submission. What failed is on the last lines, and in the database.
"""

import sys

if __name__ == "__main__":
    from pipeline.orchestration import submitted

    sys.exit(submitted(*sys.argv[1:]))
