"""The workload of a site, its generator, and synthetic jobs beside real ones."""
