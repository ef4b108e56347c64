"""CPU traces: what is this thread, job or node doing, and is it normal? Windows -> embeddings, scores, diagnosis."""
