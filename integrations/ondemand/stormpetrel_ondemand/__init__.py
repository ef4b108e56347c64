"""Stormpetrel in Open OnDemand: a small web application that runs as the user. Python's standard library and the light client."""
