"""A human study that needs no humans: the shapes world's truth takes the place of the annotators.

- instances.py: the four tasks, three candidates of graded quality each, ratings and best-of-three by a published rule
- answers.py: the rule for answers and expressions; documents.py: drawn documents and the rule for reading them
- study.py: runs the metrics; results.py: the analogues of HarmonicEval's tables 2, 3, 5 and 6; plots.py: their pictures
"""
