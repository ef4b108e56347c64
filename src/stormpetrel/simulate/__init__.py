"""A cluster that is not there, from a seed. For now: the small log that the demo ingests."""
