"""The metrics of captions.yaml, beside it."""

from rewards.hosts.lmms_eval import RewardTask

task = RewardTask("examples/hosts/reward.yaml")
process_results, overall, abstained = task.process_results, task.mean("overall"), task.abstained


def doc_to_visual(doc):
    """The picture of a document, as lmms-eval wants it."""
    return [doc["image"].convert("RGB")]
