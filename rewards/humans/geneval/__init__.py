"""GenEval's human answers (Ghosh et al. 2023): what five people saw in each of 1,200 pictures, asked by skill.

- annotations.py: the files, a row an annotator, and the prompts' metadata
- questions.py: the same questions for a judge: count, colour, position, with the answer that the prompt wants
- study.py: people against people (leave one out) and judges against people, by skill
"""
