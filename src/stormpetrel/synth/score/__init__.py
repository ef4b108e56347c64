"""How good a synthetic workload is: fidelity, order, copies, odd against even weeks."""
