"""The table of jobs kept in memory: one frame per month, found, filtered, sorted and paged."""
