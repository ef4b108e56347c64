"""The model registry: one folder per version, sealed by digests."""
