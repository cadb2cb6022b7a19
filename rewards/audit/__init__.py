"""What would a policy find out about a reward, before it does? `rewards audit text`.

`words` and `edits` make one false detail in a true text, `gains` what is worth nothing and may be rewarded all the
same, `texts` asks the reward, `findings` is what comes out: a table, a verdict and JSON. `data` reads a user's file.
"""
