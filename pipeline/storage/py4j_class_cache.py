"""What PySpark asks the JVM for by name, asked once in a process.

Every column expression asks again for its class and for the class's function: two calls to the JVM before the one that
does something, and for a short name (`functions`) the JVM looks through all jars for a class of just that name first.
A class and its static methods stay what they are as long as the JVM lives, so they are kept here.
"""

from __future__ import annotations

from typing import Any

from py4j.java_gateway import JavaClass, JavaMember, JVMView
from pyspark import SparkContext
from pyspark.sql import SparkSession


class _CachedJavaClass(JavaClass):  # type: ignore[misc]
    """A class that keeps its static methods."""

    def __getattr__(self, name: str) -> Any:
        found = super().__getattr__(name)
        if type(found) is JavaMember:
            self.__dict__[name] = found
        return found


class _CachedJvmView(JVMView):  # type: ignore[misc]
    """The JVM, keeping the classes that were asked for."""

    def __getattr__(self, name: str) -> Any:
        found = super().__getattr__(name)
        if type(found) is JavaClass:
            found = self.__dict__[name] = _CachedJavaClass(found._fqn, self._gateway_client)
        return found


def cache_java_classes(spark: SparkSession) -> None:
    """Let the session of this process's JVM keep the classes that it asks for."""
    context: Any = SparkContext
    seen = context._jvm
    if isinstance(seen, JVMView) and not isinstance(seen, _CachedJvmView):
        context._jvm = _CachedJvmView(seen._gateway_client, seen._jvm_name, id=seen._id)
        session: Any = spark
        session._jvm = context._jvm
