"""Jobs: how likely a job is to fail, why, and what to ask for instead."""

from stormpetrel.learn.threads import wait_politely

wait_politely()  # here, and not where they are used: it works only before scikit-learn or XGBoost is first imported
