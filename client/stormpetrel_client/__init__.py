"""Stormpetrel for users of a cluster: asks the site's service, and prints what it says. Nothing but Python's standard library."""

__version__ = "0.1.0"
