"""The prior: general experience with jobs of other sites, for a site that has no history of its own yet."""
