"""Generators of rows: the networks of the published study, copulas, the bootstrap, and SDV as an outside reference."""
