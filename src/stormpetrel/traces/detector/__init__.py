"""The detector of unusual windows: rarity among a site's calm windows, for threads, jobs and nodes, and why."""
