"""What would a policy find out about a reward, before it does? `rewards audit`.

`words` and `edits` make one false detail in a true text, `gains` what is worth nothing and may be rewarded all the
same; `texts` and `pictures` put these and false pictures beside the truth, and `variants` asks the reward. `findings`
is what comes out (a table, a verdict, JSON), `page` shows it, `comparison` puts two beside each other. `search` looks
for what nobody listed; `runs` tells what a policy has found. `data` reads a user's file, `before` audits before a run.
"""
