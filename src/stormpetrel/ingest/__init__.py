"""From sources into the store: what is known, which record is right, what is refused, and the report."""
