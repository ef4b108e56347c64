"""Incidents and messages: their state, and their history as a table."""
