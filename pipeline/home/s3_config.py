"""The configuration of S3, from the environment variables that every tool of AWS reads.

They are `AWS_ENDPOINT_URL_S3` or `AWS_ENDPOINT_URL` (for a store that is not Amazon's), and `AWS_REGION` or
`AWS_DEFAULT_REGION`. Each library finds the credentials itself (`AWS_ACCESS_KEY_ID` …, `AWS_PROFILE`, roles of the
machine), so they never pass through this program. The configuration contains no secret: it may be sent to executors and
written into settings.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit


def in_s3(location: str) -> bool:
    """Tell whether Iceberg's S3FileIO reads and writes these tables. Spark's Hadoop does so for `s3a:`."""
    return location.startswith("s3://")


@dataclass(frozen=True)
class S3:
    """An endpoint and a region. Without an endpoint it is Amazon's; without a region, that of the profile or the
    bucket."""

    endpoint: str | None = None
    region: str | None = None

    @classmethod
    def from_environment(cls) -> S3:
        """Read the settings from the environment of this process."""
        endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or None
        region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or None
        return cls(endpoint, region or ("us-east-1" if endpoint else None))

    def arrow_options(self) -> dict[str, Any]:
        """Return the arguments of `pyarrow.fs.S3FileSystem`.

        >>> S3("http://127.0.0.1:7070", "us-east-1").arrow_options()
        {'scheme': 'http', 'endpoint_override': '127.0.0.1:7070', 'region': 'us-east-1'}
        """
        options: dict[str, Any] = {}
        if self.endpoint:
            parts = urlsplit(self.endpoint if "//" in self.endpoint else f"https://{self.endpoint}")
            options |= {"scheme": parts.scheme, "endpoint_override": parts.netloc + parts.path.rstrip("/")}
        return options | ({"region": self.region} if self.region else {})

    def iceberg_options(self) -> dict[str, str]:
        """Return the properties of Iceberg's S3FileIO, for a catalog or for a file IO."""
        options: dict[str, str] = {}
        if self.endpoint:
            # bucket names as subdomains are Amazon's way; other stores need not support them
            options |= {"s3.endpoint": self.endpoint, "s3.path-style-access": "true"}
        return options | ({"client.region": self.region} if self.region else {})
