"""DSG's human study: VQA answers about 800 pictures against five Likert ratings each (arXiv 2310.18235, §4, table 4).

- answers.py: the released answers and ratings, read with their gaps and odd cells reported
- scores.py: a number a picture, by reading of the dependencies and by aggregate
- study.py: every variant by its name against people, and the paired tests between them
"""
