"""A judge as a pairwise preference: two responses about one picture, the one that people prefer (VL-RewardBench).

- records.py: VL-RewardBench's file format and its three groups
- preferences.py: how a preference is got: from any reward's scores, or by showing a judge both responses in each order
- running.py: over the pairs whose pictures are there; settings.py: a reward by its YAML block
- study.py: accuracy by group and macro, position consistency, ties
"""
