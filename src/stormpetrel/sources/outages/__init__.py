"""Outages and maintenance as sites publish them: CSV, iCalendar, OSG downtimes, Grafana annotations."""
