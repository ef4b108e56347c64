"""Messages on their way to people: outbox, routes, receivers, checks."""
