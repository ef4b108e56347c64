"""The default generator: users who come in sessions."""
