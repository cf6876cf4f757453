"""A cache of rules of Great Expectations, so that each is prepared once.

Great Expectations makes the configuration of a rule, and the list of metrics that it needs, again whenever they are
needed: some 150 times for one verdict. Neither depends on the data. A rule here is a custom expectation, derived from
Great Expectations' own and registered under its name, which caches both. The meaning and the result of a rule are those
of Great Expectations.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from typing import Any

_Dependencies = dict[str, Any]  # by the rule's arguments and the format of the result; one entry for each rule


@cache
def rule_class(kind: str) -> Any:
    """Return the prepared rule that replaces a class of `great_expectations.expectations`."""
    import great_expectations as gx
    from pydantic.v1 import PrivateAttr

    base: Any = getattr(gx.expectations, kind)
    known: _Dependencies = {}

    def configuration(self: Any) -> Any:
        fields = tuple(map(id, self.__dict__.values()))  # a field that is set again is another object
        if self._made is None or self._made[0] != fields:
            self._made = fields, base.configuration.fget(self)
        return self._made[1]

    def get_validation_dependencies(self: Any, execution_engine: Any = None, runtime_configuration: Any = None) -> Any:
        engine = type(execution_engine).__name__
        key = json.dumps([engine, self.configuration.kwargs, runtime_configuration], default=str)
        if key not in known:
            known[key] = base.get_validation_dependencies(self, execution_engine, runtime_configuration)
        return replace(known[key], metric_configurations=dict(known[key].metric_configurations))

    members = {
        "__module__": __name__,
        "__doc__": base.__doc__,
        "_made": PrivateAttr(None),
        "configuration": property(configuration),
        "get_validation_dependencies": get_validation_dependencies,
    }
    return type(base)(kind, (base,), members)
