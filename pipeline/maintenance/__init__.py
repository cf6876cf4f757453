"""Work on published revisions that no batch asks for: compaction, rollback, the move of a home."""
