"""`stormpetrel ingest`: records into the store."""
