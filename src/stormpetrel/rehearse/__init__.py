"""Campaigns on real machines: jobs of known types run here, recorded through the exporter and Prometheus, and labelled."""
