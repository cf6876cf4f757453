"""The product but for its algorithms and its checks: settings, state, tables, runs, readers, commands."""

if __name__ == "pipeline":  # imported by its former name, with a clone on the path
    from altneu import former_names

    former_names.serve()
    __path__ = []  # nothing below is loaded a second time
