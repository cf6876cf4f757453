"""How S3 is reached: by the environment, in the variables that every tool of AWS reads.

`AWS_ENDPOINT_URL_S3` or `AWS_ENDPOINT_URL` (a store that is not Amazon's), `AWS_REGION` or `AWS_DEFAULT_REGION`.
Credentials are found by each library itself (`AWS_ACCESS_KEY_ID` …, `AWS_PROFILE`, roles of the machine): they never
pass through this program. What is here holds no secret, so that it may travel to executors and stand in settings.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit


def in_s3(location: str) -> bool:
    """Are these tables read and written by Iceberg's S3FileIO? Those of `s3a:` go through Spark's Hadoop."""
    return location.startswith("s3://")


@dataclass(frozen=True)
class S3:
    """An endpoint and a region. None: Amazon's own; the one of the profile, or of the bucket."""

    endpoint: str | None = None
    region: str | None = None

    @classmethod
    def from_environment(cls) -> S3:
        """Read the settings from the environment of this process."""
        endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or None
        region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or None
        return cls(endpoint, region or ("us-east-1" if endpoint else None))

    def arrow_options(self) -> dict[str, Any]:
        """Arguments of `pyarrow.fs.S3FileSystem`.

        >>> S3("http://127.0.0.1:7070", "us-east-1").arrow_options()
        {'scheme': 'http', 'endpoint_override': '127.0.0.1:7070', 'region': 'us-east-1'}
        """
        found: dict[str, Any] = {}
        if self.endpoint:
            parts = urlsplit(self.endpoint if "//" in self.endpoint else f"https://{self.endpoint}")
            found |= {"scheme": parts.scheme, "endpoint_override": parts.netloc + parts.path.rstrip("/")}
        return found | ({"region": self.region} if self.region else {})

    def iceberg_options(self) -> dict[str, str]:
        """Properties of Iceberg's S3FileIO, in a catalog or in a file IO of its own."""
        found: dict[str, str] = {}
        if self.endpoint:
            # a name for each bucket under the host is Amazon's own; other stores need not have one
            found |= {"s3.endpoint": self.endpoint, "s3.path-style-access": "true"}
        return found | ({"client.region": self.region} if self.region else {})
