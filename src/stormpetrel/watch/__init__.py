"""The live loop: read → judge → commit → settle → tell, until it is told to stop."""
