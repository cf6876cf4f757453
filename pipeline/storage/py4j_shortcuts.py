"""Shortcuts of the calls that PySpark makes to the JVM: a run of a few rows makes thousands, each a tenth of a
millisecond and more.

Classes  For every column expression PySpark looks up its class and the method of the class: two calls before the one
         that does the work. For a short name (`functions`) the JVM also searches all jars for a class with just that
         name. A class and its static methods do not change as long as the JVM lives, so they are kept.
Columns  A column that is only a name, a literal or a text never changes, so it is kept as well.
Lists    A list of columns or texts is made by one call for ten elements, not by one for each.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from py4j.java_gateway import JavaClass, JavaMember, JavaObject, JVMView
from py4j.protocol import STATIC_PREFIX, register_input_converter
from pyspark import SparkContext
from pyspark.sql import SparkSession

STEADY = {"col", "lit", "expr"}  # functions of columns whose result depends on their argument alone
KEPT_COLUMNS = 4096
_FUNCTIONS = "org.apache.spark.sql.functions"
_LIST_OF = 10  # `List.of` in Java takes so many elements


class _CachedJavaClass(JavaClass):  # type: ignore[misc]
    """A Java class that keeps its static methods."""

    def __getattr__(self, name: str) -> Any:
        member = super().__getattr__(name)
        if type(member) is JavaMember:
            steady = self._fqn == _FUNCTIONS and name in STEADY
            member = self.__dict__[name] = _SteadyMember(member) if steady else member
        return member


class _SteadyMember:
    """A static method that keeps its results for single texts and whole numbers."""

    def __init__(self, member: JavaMember) -> None:
        self._call = member
        self._call_once = functools.lru_cache(KEPT_COLUMNS, typed=True)(lambda argument: member(argument))

    def __call__(self, *arguments: Any) -> Any:
        steady = len(arguments) == 1 and isinstance(arguments[0], (str, int))
        return (self._call_once if steady else self._call)(*arguments)


class _CachedJvmView(JVMView):  # type: ignore[misc]
    """A view of the JVM that keeps the classes that were looked up."""

    def __getattr__(self, name: str) -> Any:
        member = super().__getattr__(name)
        if type(member) is JavaClass:
            member = self.__dict__[name] = _CachedJavaClass(member._fqn, self._gateway_client)
        return member


class _ListConverter:
    """A converter of lists of texts and Java objects."""

    def can_convert(self, value: Any) -> bool:
        return isinstance(value, (list, tuple)) and all(isinstance(each, (str, JavaObject)) for each in value)

    def convert(self, value: Sequence[Any], client: Any) -> Any:
        list_of = JavaMember("of", None, f"{STATIC_PREFIX}java.util.List", client)
        if len(value) <= _LIST_OF:
            return list_of(*value)
        java_list = JavaClass("java.util.ArrayList", client)()
        for start in range(0, len(value), _LIST_OF):
            java_list.addAll(list_of(*value[start : start + _LIST_OF]))
        return java_list


def shorten_calls(spark: SparkSession) -> None:
    """Let PySpark take the shortcuts in the JVM of this process."""
    context: Any = SparkContext
    seen = context._jvm
    if isinstance(seen, JVMView) and not isinstance(seen, _CachedJvmView):
        context._jvm = _CachedJvmView(seen._gateway_client, seen._jvm_name, id=seen._id)
        session: Any = spark
        session._jvm = context._jvm
        if not any(isinstance(each, _ListConverter) for each in seen._gateway_client.converters):
            register_input_converter(_ListConverter(), prepend=True)
