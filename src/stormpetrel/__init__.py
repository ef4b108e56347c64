"""Stormpetrel: early warning for compute clusters.

outside world -> sources -> store -> families -> lifecycle -> watch -> faces.
"""

__version__ = "0.1.0"
