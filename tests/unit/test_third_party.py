"""GraphFrames' JVM half is not everywhere; that we call its Python half as it is written can be said without."""

from __future__ import annotations

from unittest.mock import MagicMock, create_autospec

import graphframes
import pytest

from altneu.algorithms.graph import graphframes_oracle


def test_graphframes_is_called_as_its_signature_says(monkeypatch: pytest.MonkeyPatch) -> None:
    frame = create_autospec(graphframes.GraphFrame)
    monkeypatch.setattr(graphframes, "GraphFrame", frame)
    monkeypatch.setattr(graphframes_oracle, "reference_name", lambda spark: "GraphFrames")
    graphframes_oracle.triangle_counts(MagicMock(), "unused")
    frame.assert_called_once()
    frame.return_value.triangleCount.assert_called_once()
