"""TIFA: fixed questions about a generated image, answered by a VQA model (section 3 of the paper)."""

SENTENCE_MODEL = "sentence-transformers/all-mpnet-base-v2"
"""SBERT for free-form answers: the checkpoint of the released code; the paper names none."""
