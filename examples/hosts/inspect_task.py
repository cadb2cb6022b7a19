"""A task of inspect-ai whose scorer is HarmonicEval.

inspect eval examples/hosts/inspect_task.py --model hf/Qwen/Qwen2.5-VL-3B-Instruct
"""

from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.model import ChatMessageUser, ContentImage, ContentText
from inspect_ai.solver import generate

from rewards.hosts.inspect_ai import reward_scorer


@task
def captions() -> Task:
    """One picture; put your own in its place."""
    message = ChatMessageUser(content=[ContentText(text="Describe the picture."), ContentImage(image="photo.jpg")])
    return Task([Sample(input=[message])], solver=generate(), scorer=reward_scorer("examples/hosts/reward.yaml"))
