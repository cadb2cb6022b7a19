"""From run folders to curves, plots and one HTML page."""
