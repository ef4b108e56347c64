"""One person's own page: how the jobs went, compared with people alike, what they cost, what to change, and the weekly digest."""
