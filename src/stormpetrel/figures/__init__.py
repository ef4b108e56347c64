"""Figures: one function each, frame in, Plotly figure out. The report, the dashboard and the notebook draw the same ones."""
