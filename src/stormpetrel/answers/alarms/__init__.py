"""What reaches a person: incidents, and what the past would have reported."""
