# GRPO in verl with HarmonicEval: the last two lines are what is added to verl's own command.
# The parquet files hold the picture of every prompt in `extra_info` ({"image": path, "index": number}).
python3 -m verl.trainer.main_ppo \
  algorithm.adv_estimator=grpo \
  data.train_files=train.parquet data.val_files=test.parquet \
  actor_rollout_ref.model.path=Qwen/Qwen2.5-VL-3B-Instruct \
  reward.custom_reward_function.path=pkg://rewards.hosts.verl \
  +reward.custom_reward_function.reward_kwargs.config=examples/hosts/reward.yaml
