# RL in OpenRLHF with HarmonicEval: the first and the last line are what is added to OpenRLHF's own command.
# The label of every prompt is a JSON object with its picture: {"image": "photo.jpg"}.
export REWARDS_CONFIG=examples/hosts/reward.yaml
python3 -m openrlhf.cli.train_ppo_ray \
  --pretrain Qwen/Qwen2.5-VL-3B-Instruct --prompt_data train.jsonl --input_key prompt --label_key label \
  --reward.remote_url "$(python -m rewards.hosts openrlhf)"
