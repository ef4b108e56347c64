"""The grid as a whole: counts of events, what was said about them, alarms, labels and capacity."""
