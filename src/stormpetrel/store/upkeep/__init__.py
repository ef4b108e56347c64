"""Upkeep of a site: backup, repair, retention, compaction, forgetting of users."""
