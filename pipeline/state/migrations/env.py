"""Alembic runs this: on the connection that `pipeline.page_queries.versions` gives it, in that connection's
transaction."""

from alembic import context

from pipeline.state.schema import metadata, version

context.configure(context.config.attributes["connection"], target_metadata=metadata, version_table=version.name)
with context.begin_transaction():
    context.run_migrations()
