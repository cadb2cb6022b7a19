"""MMHE: texts of four tasks with ratings by criterion and a best of three (HarmonicEval §3, §4).

- records.py: the file format, its validation, the converter from one row a rating
- texts.py: instances as flat lists of texts with ratings
- scores.py: a metric's scores of the candidates, and their file; scoring.py: the same from metrics that are run here
- best_of_three.py: accuracy by task and tau by criterion (tables 2, 3, 5, 6)
"""
