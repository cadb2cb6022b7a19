"""What the train scripts of flow_grpo, DiffusionNFT, AWM and ddpo-pytorch do with a reward, on two pictures.

python examples/hosts/picture_reward.py PICTURE PROMPT PICTURE PROMPT
"""

import sys

import numpy as np
from PIL import Image

from rewards.hosts.flow_grpo import picture_reward

reward_fn = picture_reward("examples/hosts/pictures.yaml")
pictures = [np.asarray(Image.open(path).convert("RGB").resize((512, 512))) for path in sys.argv[1::2]]
rewards, metrics = reward_fn(np.stack(pictures), sys.argv[2::2], [{} for _ in pictures])
print(rewards, metrics)
