"""What a run will need, told before it begins and without a GPU: memory, forwards, tokens, time, what is missing."""
