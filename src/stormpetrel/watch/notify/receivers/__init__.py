"""One file per kind of receiver."""
