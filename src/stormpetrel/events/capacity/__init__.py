"""Capacity: what the load of past weeks says about the weeks to come."""
