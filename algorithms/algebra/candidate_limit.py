"""A limit on the candidates of a query: each join is counted before it lists anything.

Law      A join that would list more than `max_candidates` is refused before it lists any. Others are as without it.
Cost     EXECUTES: the prefixes of each join are stored for as long as the limit lives, and counted by one Spark job.
         They are computed once, though later joins use them several times.
Errors   `TooManyCandidates`, with the number, and the values that most of the candidates have.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

CANDIDATES = "_candidates"  # the column with how many records a join finds for a row


class TooManyCandidates(Exception):
    """A join that would list too many candidates; `hub` has the values of those that are looked up most often."""

    def __init__(self, candidates: int, max_candidates: int, hub: Mapping[str, Any], of_hub: int) -> None:
        super().__init__(f"a join would list {candidates:,} candidates, and {max_candidates:,} are the most")
        self.candidates, self.max_candidates, self.hub, self.of_hub = candidates, max_candidates, hub, of_hub


@dataclass
class CandidateLimit:
    """How many candidates a join may list, and from how many prefixes on none are sent to all executors.

    changed_rows: those with which the joins begin. largest_relation: how many rows each of them may meet at most. A
    join is not counted where it cannot list too many by these. candidates: those of the last join that was counted.
    """

    max_candidates: int
    max_broadcast: int
    changed_rows: int
    largest_relation: int
    candidates: int = 0
    _stored: list[DataFrame] = field(default_factory=list)

    @property
    def must_count(self) -> bool:
        """Tell whether the next join may list too many candidates: all of its prefixes might be at one hub."""
        return self.changed_rows * self.largest_relation > self.max_candidates

    @property
    def must_count_all(self) -> bool:
        """Tell whether a join of whole relations may list too many candidates."""
        return self.largest_relation**2 > self.max_candidates

    def skip(self) -> None:
        """Note a join that is not counted."""
        self.changed_rows *= self.largest_relation

    def admit(self, counted: DataFrame, key: Column) -> DataFrame:
        """Store the prefixes of a join, and return them without the column `_candidates`.

        Args:
            counted: the prefixes with the number of records that the join finds for each of them.
            key: the values that are looked up, as a struct.

        Raises:
            TooManyCandidates: the join would list more than `max_candidates`.
        """
        stored = counted.withColumn("_hub", key).persist()
        self._stored.append(stored)
        self.require_few(stored, F.col("_hub"))
        self.changed_rows = self.candidates
        return stored.drop(CANDIDATES, "_hub")

    def require_few(self, counted: DataFrame, key: Column) -> None:
        """Note the sum of the column `_candidates` of a join; EXECUTES.

        Raises:
            TooManyCandidates: it is more than `max_candidates`.
        """
        count = F.col(CANDIDATES).cast("double")  # a number of pairs may be too large for a long
        sums = counted.agg(F.sum(count), F.max(count), F.to_json(F.max_by(key, count))).first()
        total, greatest, hub = sums if sums is not None and sums[0] is not None else (0, 0, None)
        if total > self.max_candidates:
            raise TooManyCandidates(int(total), self.max_candidates, json.loads(hub or "{}"), int(greatest))
        self.candidates = int(total)

    def release(self) -> None:
        """Give the memory of the stored prefixes back."""
        for frame in self._stored:
            frame.unpersist()
        self._stored.clear()
