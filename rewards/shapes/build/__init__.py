"""How the shipped weights were made. `python -m rewards.shapes.build PART --out DIR` trains one part; see
`__main__.py`.
"""
