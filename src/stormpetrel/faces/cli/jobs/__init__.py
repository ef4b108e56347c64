"""`stormpetrel jobs`, `check` and `why`: which jobs will fail, why, and what to request instead."""
