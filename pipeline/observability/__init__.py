"""What tells people and other programs of runs: telemetry, OpenLineage events, alerts."""
