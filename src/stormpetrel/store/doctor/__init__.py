"""Checks of the store for the doctor: folder, disk, state, registry, tables, and every byte against its digest.

Site -> check_… -> Finding. None changes anything but a probe file that it removes again.
"""
