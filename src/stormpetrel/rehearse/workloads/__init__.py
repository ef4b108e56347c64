"""The jobs of a campaign as programs: each works for some seconds on one thread and says as JSON what it did.

`python -m stormpetrel.rehearse.workloads.bad_io --seconds 10 --scratch DIR --seed 1` -> one line of JSON on stdout. MPI is a C
program with them (`allreduce.c`). They run on their own, without a campaign, as well.
"""
