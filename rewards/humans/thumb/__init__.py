"""THumB 1.0 (Kasai et al. 2022): 2,500 captions of 500 COCO pictures by four systems and people, rated by criterion.

- records.py: the file, its criteria, and which of HarmonicEval's five criteria answers to which of them
- study.py: a metric against every criterion and the total, and the ranking of the systems
"""
