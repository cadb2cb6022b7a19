# GRPO in ms-swift with HarmonicEval: the first and the last line are what is added to ms-swift's own command.
export REWARDS_CONFIG=examples/hosts/reward.yaml
swift rlhf --rlhf_type grpo \
  --model Qwen/Qwen2.5-VL-3B-Instruct --dataset train.jsonl --num_generations 8 \
  --external_plugins "$(python -m rewards.hosts ms_swift)" --reward_funcs rewards
