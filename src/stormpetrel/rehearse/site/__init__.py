"""The rehearsal for one site: faults put into a copy of its own history, walked through by the code of the watch."""
