"""Triangles per vertex, counted by third-party code: a reference for audits that shares nothing with altneu.

GraphFrames counts if its JVM half is among the jars, otherwise GraphX inside Spark, reached over py4j: edges are
exported and counts imported as text files, because GraphX takes its graphs from Scala code or from files. Both need a
Spark whose JVM this process can reach (not Spark Connect).

Cost     The whole graph, several shuffles: seconds at 10,000 edges, minutes at a million (design, measured facts).
Source   Xin et al., "GraphX" (2013); `org.apache.spark.graphx.lib.TriangleCount`.
"""

from __future__ import annotations

import uuid
from typing import Any

from pyspark.sql import DataFrame

from altneu.algorithms.paths import spark_pattern


def reference_name(spark: Any) -> str:
    """Return the name of the reference that counts: `GraphFrames` or `GraphX`."""
    try:
        spark._jvm.java.lang.Class.forName(
            "org.graphframes.GraphFrame", False, spark._jvm.java.lang.Thread.currentThread().getContextClassLoader()
        )
    except Exception:  # py4j wraps the ClassNotFoundException
        return "GraphX"
    return "GraphFrames"


def triangle_counts(edges: DataFrame, folder: str) -> DataFrame:
    """Count the triangles of each vertex: edges a, b → vertex, triangles. Vertices without a triangle may be left out.

    `folder` is a path or URI that every executor sees; files for GraphX lie there while this runs, and are deleted
    before it returns. EXECUTES.
    """
    if reference_name(edges.sparkSession) == "GraphFrames":
        return _count_with_graphframes(edges)
    return _count_with_graphx(edges, f"{folder.rstrip('/')}/graphx-{uuid.uuid4().hex}")


def _count_with_graphframes(edges: DataFrame) -> DataFrame:
    from graphframes import GraphFrame
    from pyspark import StorageLevel

    vertices = edges.selectExpr("explode(array(a, b)) AS id").distinct()
    counted: DataFrame = GraphFrame(vertices, edges.selectExpr("a AS src", "b AS dst")).triangleCount(
        StorageLevel.MEMORY_AND_DISK
    )
    return counted.selectExpr("CAST(id AS bigint) AS vertex", "CAST(count AS bigint) AS triangles")


def _count_with_graphx(edges: DataFrame, folder: str) -> DataFrame:
    spark: Any = edges.sparkSession
    jvm, context = spark._jvm, spark._jsc.sc()
    path = jvm.org.apache.hadoop.fs.Path(folder)
    edges.selectExpr("concat_ws(' ', a, b)").write.text(f"{folder}/edges")
    try:
        level = jvm.org.apache.spark.storage.StorageLevel.MEMORY_AND_DISK()
        loader = jvm.org.apache.spark.graphx.GraphLoader
        graph = loader.edgeListFile(context, spark_pattern(f"{folder}/edges"), False, -1, level, level)
        number = jvm.scala.reflect.ClassTag.Int()
        counted = jvm.org.apache.spark.graphx.lib.TriangleCount.run(graph, number, number)
        counted.vertices().saveAsTextFile(f"{folder}/counts")  # lines such as (17,3)
        graph.unpersist(False)
        lines = spark.read.text(spark_pattern(f"{folder}/counts")).selectExpr(
            "split(substring(value, 2, length(value) - 2), ',') AS v"
        )
        parsed = lines.selectExpr("CAST(v[0] AS bigint) AS vertex", "CAST(v[1] AS bigint) AS triangles")
        result: DataFrame = parsed.localCheckpoint()
        return result
    finally:
        path.getFileSystem(context.hadoopConfiguration()).delete(path, True)
