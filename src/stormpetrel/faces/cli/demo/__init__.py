"""`stormpetrel demo`: a simulated site, read like a real one, trained, watched, and in the browser."""
