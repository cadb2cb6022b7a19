"""Trainers: `diffusion` for models that draw, `language` for models that write."""
