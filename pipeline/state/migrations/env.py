"""The script that Alembic runs, on the connection and in the transaction that `altneu.pipeline.state.versions` gives
it."""

from alembic import context

from altneu.pipeline.state.schema import metadata, version

context.configure(context.config.attributes["connection"], target_metadata=metadata, version_table=version.name)
with context.begin_transaction():
    context.run_migrations()
