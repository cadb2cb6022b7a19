# RL of a model that draws in verl-omni with TIFA: the last three lines are what is added to verl-omni's own command.
python3 -m verl_omni.trainer.main_diffusion \
  data.train_files=train.parquet data.val_files=test.parquet \
  reward.reward_manager.name=MultiVisualRewardManager \
  +reward.reward_functions.tifa.path=pkg://rewards.hosts.verl_omni \
  +reward.reward_functions.tifa.name=compute_score \
  +reward.reward_functions.tifa.config=examples/hosts/pictures.yaml
