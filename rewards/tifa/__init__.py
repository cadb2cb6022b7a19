"""TIFA: fixed questions about a generated image, answered by a VQA model (section 3 of the paper)."""
