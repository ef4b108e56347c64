"""A cluster that is not there, from a seed: users, applications, a scheduler, outcomes; as job frames, logs or a live feed."""
