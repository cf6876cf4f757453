"""The plan choices: rules that choose the strategy of a stage from numbers."""
