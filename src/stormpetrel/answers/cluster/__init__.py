"""The cluster as a whole: counts of events, what was predicted or scored of them, alarms, labels and capacity."""
