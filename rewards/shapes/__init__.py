"""The shapes world: drawn scenes with known truth, small trained models, and an exact oracle."""
