"""Synthetic workloads: more jobs like a site's own, in an order like its own, safe to share."""

from stormpetrel.learn.threads import wait_politely

wait_politely()  # before scikit-learn or XGBoost is first imported
