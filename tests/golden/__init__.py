"""Frozen results: what the library computed at one commit, so that a redesign can show that it computes the same.

`record.py` made the `*.json` here (it says how), `test_golden.py` makes them again with the present code and compares.
What depends on the library's names stands in two files: `runs.py` (how each run is started) and `reading.py` (where its
values lie on disk). The values themselves are named by meaning, and stay.

Changed on purpose since: the summary of a DDPO run gives every element type as a mean over prompts with its interval,
as all trainers do; the pooled accuracy of each type is in `evaluations` as before, and no longer in `summary`.
"""
