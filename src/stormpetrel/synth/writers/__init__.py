"""Synthetic jobs written out: files, job records, an HTCondor event log, CPU traces. The one part of a family that sees files."""
