"""Rubrics: checklists for texts, an item a verdict. items.py: what is asked; aggregation.py: the maths; reward.py."""
