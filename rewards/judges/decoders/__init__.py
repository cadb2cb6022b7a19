"""Decoder VLMs as judges: `vlm` is the judge; the rest computes what its prompts share once and reads the ratings."""
