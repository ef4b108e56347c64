"""The count model: expected events per hour by regression on the past, and how unlikely a count is."""
