"""HarmonicEval as a metric, over batches of pictures and texts.

python examples/hosts/metric.py PICTURE TEXT PICTURE TEXT
"""

import sys

from rewards.hosts.torchmetrics import RewardMetric

metric = RewardMetric("examples/hosts/reward.yaml")
for picture, text in zip(sys.argv[1::2], sys.argv[2::2], strict=True):
    metric.update([picture], [text])
print({name: round(float(value), 3) for name, value in metric.compute().items()})
