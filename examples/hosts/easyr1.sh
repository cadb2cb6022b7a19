# GRPO in EasyR1 with HarmonicEval: the last two lines are what is added to EasyR1's own command.
# The answer column of the data is a JSON object with the picture: {"image": "photo.jpg"}.
python3 -m verl.trainer.main \
  config=examples/config.yaml \
  data.train_files=train.parquet data.val_files=test.parquet \
  worker.actor.model.model_path=Qwen/Qwen2.5-VL-3B-Instruct \
  worker.reward.reward_function="$(python -m rewards.hosts easyr1)":compute_score \
  worker.reward.reward_function_kwargs='{config: examples/hosts/reward.yaml}'
