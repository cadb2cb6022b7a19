"""Models that look at pictures: they rate, answer and choose (see `base.py`)."""
