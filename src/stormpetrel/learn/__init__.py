"""What every family of models shares: metrics, splits by time, calibration, save and load."""
