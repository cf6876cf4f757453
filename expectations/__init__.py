"""The data-quality suites as code: one file per table, run by `suite.check_tables` and `suite.check_differences`.

A suite knows columns, bounds and severities. It never changes data, never decides what is published, and does not use
the code that made the data. Importing this package imports neither Spark nor Great Expectations.
"""

from altneu import former_names

if __name__ != "altneu.expectations":
    former_names.refuse(__name__)
