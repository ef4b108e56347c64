"""The workload of a site, its generator, and synthetic jobs compared with real ones."""
