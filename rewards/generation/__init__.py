"""Sampling from models that write, for trainers and for reranking: `checkpoints` loads them, `texts` draws."""
