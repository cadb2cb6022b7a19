"""Rewards inside other trainers and evaluators, a file a host: each turns the host's call into :class:`Reward.score`.

`shared` holds what they have in common: the reward from settings, one a process, and what a host is given for a sample
that could not be judged (:class:`~rewards.hosts.shared.Neutral`).
"""
