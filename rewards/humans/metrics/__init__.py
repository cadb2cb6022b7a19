"""Metrics under one protocol: what is scored, what comes back, whether references are needed.

- base.py: `TextItem`, `MetricScores`, `Metric`
- harmonic.py: HarmonicEval for several gammas from one pass of the judge (gamma 1 is uniform averaging)
- overall_judge.py: one prompt for all criteria ("without criterion-wise scoring")
- fleur.py: FLEUR, both digits smoothed as published
- clip_score.py: reference-free CLIPScore
- references.py: BLEU, ROUGE-L, METEOR, CIDEr, BERTScore through their libraries (extra `humans`)
- battery.py: all of them that can be run with what a user has
"""
