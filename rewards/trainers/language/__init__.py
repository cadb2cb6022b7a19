"""Models that write: GRPO, RLOO and PPO on TRL."""
