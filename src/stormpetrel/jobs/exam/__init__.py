"""How good the forecasts of outcomes are: splits, baselines, the published table, intervals, and what each feature gives."""
