"""Collections that change over time, and operators on them: a library in its own right."""
