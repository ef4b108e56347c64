"""The site's memory: history in Delta Lake tables, what changes in SQL."""
