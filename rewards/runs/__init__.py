"""What every run leaves on disk: its folder, its config, metrics, samples and card. Loads no torch."""
