"""Events: is the grid as a whole in normal operation, what is wrong, since when, and where."""
