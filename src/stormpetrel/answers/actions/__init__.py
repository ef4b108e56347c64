"""Acting: what policies would do and did, the switch, and a person's own act."""
