"""From a network's output to the next state: a sampler each, with the density of its steps where it has one."""
