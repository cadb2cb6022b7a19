"""Models that draw: DDPO on diffusers pipelines."""
