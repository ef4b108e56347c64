"""What jobs held, and the energy that it took."""
