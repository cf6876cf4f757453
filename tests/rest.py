"""A real REST catalog for tests, Iceberg's own fixture: `rest` is the server, which can be told to fail.

Its jars are resolved once, by Maven.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from altneu.pipeline.storage.assets import ASSETS
from tests import tools
from tests.proxy import Proxy, free_port
from tests.tools import ICEBERG, REST_JARS

JETTY = "12.1.5"
WANTED = [  # group, artifact, version, classifier
    ("org.apache.iceberg", "iceberg-core", ICEBERG, None),
    ("org.apache.iceberg", "iceberg-core", ICEBERG, "tests"),
    ("org.apache.iceberg", "iceberg-open-api", ICEBERG, "test-fixtures"),
    ("org.eclipse.jetty.ee10", "jetty-ee10-servlet", JETTY, None),
    ("org.eclipse.jetty.compression", "jetty-compression-server", JETTY, None),
    ("org.eclipse.jetty.compression", "jetty-compression-gzip", JETTY, None),
    ("org.xerial", "sqlite-jdbc", "3.50.3.0", None),
    ("org.slf4j", "slf4j-nop", "2.0.17", None),
]


def _resolved() -> Path:
    tools.require("rest")
    if not REST_JARS.exists():
        named = "".join(
            f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>"
            + (f"<classifier>{classifier}</classifier>" if classifier else "")
            + "</dependency>"
            for group, artifact, version, classifier in WANTED
        )
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "pom.xml").write_text(
                "<project><modelVersion>4.0.0</modelVersion><groupId>t</groupId><artifactId>t</artifactId>"
                f"<version>1</version><dependencies>{named}</dependencies></project>"
            )
            command = [tools.require("rest"), "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=jars"]
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600)
            if done.returncode:
                tools.skip_without("rest", f"Maven cannot resolve its jars: {done.stdout[:300]}")
            with contextlib.suppress(OSError):  # another process was first
                shutil.move(str(Path(folder, "jars")), REST_JARS)
    return REST_JARS


@pytest.fixture(scope="session")
def rest_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    folder = tmp_path_factory.mktemp("rest")
    hadoop = Path(pyspark.__file__).parent / "jars" / "hadoop-client-*"
    jars = [str(_resolved() / "*"), *map(str, hadoop.parent.glob(hadoop.name))]
    java = ASSETS / "java" / "bin" / "java"
    port = free_port()
    said = {"REST_PORT": str(port), "WAREHOUSE": str(folder / "warehouse"), "URI": f"jdbc:sqlite:{folder}/catalog.db"}
    said["CATALOG__IMPL"] = "org.apache.iceberg.jdbc.JdbcCatalog"
    server = subprocess.Popen(
        [
            str(java if java.exists() else "java"),
            "-Xmx256m",
            "-XX:TieredStopAtLevel=1",
            "-cp",
            os.pathsep.join(jars),
            "org.apache.iceberg.rest.RESTCatalogServer",
        ],
        env=os.environ | {f"CATALOG_{name}": value for name, value in said.items()},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        for _ in range(600):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                break
            assert server.poll() is None, "the REST catalog did not start"
            time.sleep(0.1)
        proxy = Proxy(port)
        yield proxy
        proxy.proxy.shutdown()
    finally:
        server.kill()
        server.wait()


@pytest.fixture
def rest(rest_server: Proxy) -> Iterator[Proxy]:
    yield rest_server
    rest_server.faults = lambda method, path: None
    rest_server.seen.clear()
