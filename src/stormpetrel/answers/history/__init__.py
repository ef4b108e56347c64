"""What the past jobs of a site tell: trends, waste, kinds of jobs, and how good the forecasts were."""
