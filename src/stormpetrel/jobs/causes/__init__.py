"""Why a job ended as it did: the evidence of its record, of other jobs, and of the last lines it wrote; what helped others."""
