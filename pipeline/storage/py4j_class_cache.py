"""A cache of the Java classes and static methods that PySpark looks up by name in the JVM.

Without it, every column expression looks up its class and the method of the class: two calls to the JVM before the one
that does the work. For a short name (`functions`) the JVM also searches all jars for a class with just that name. A
class and its static methods do not change as long as the JVM lives, so this cache keeps them.
"""

from __future__ import annotations

from typing import Any

from py4j.java_gateway import JavaClass, JavaMember, JVMView
from pyspark import SparkContext
from pyspark.sql import SparkSession


class _CachedJavaClass(JavaClass):  # type: ignore[misc]
    """A Java class that keeps its static methods."""

    def __getattr__(self, name: str) -> Any:
        member = super().__getattr__(name)
        if type(member) is JavaMember:
            self.__dict__[name] = member
        return member


class _CachedJvmView(JVMView):  # type: ignore[misc]
    """A view of the JVM that keeps the classes that were looked up."""

    def __getattr__(self, name: str) -> Any:
        member = super().__getattr__(name)
        if type(member) is JavaClass:
            member = self.__dict__[name] = _CachedJavaClass(member._fqn, self._gateway_client)
        return member


def cache_java_classes(spark: SparkSession) -> None:
    """Let the session keep the Java classes that it looks up in the JVM of this process."""
    context: Any = SparkContext
    seen = context._jvm
    if isinstance(seen, JVMView) and not isinstance(seen, _CachedJvmView):
        context._jvm = _CachedJvmView(seen._gateway_client, seen._jvm_name, id=seen._id)
        session: Any = spark
        session._jvm = context._jvm
