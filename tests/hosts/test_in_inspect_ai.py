"""inspect-ai's own states and scores (`make test-hosts`)."""

import asyncio
import base64
import math
from pathlib import Path

import pytest

pytestmark = pytest.mark.hosts
inspect_scorer = pytest.importorskip("inspect_ai.scorer")


def state(path, text, data_uri=False, **metadata):
    from inspect_ai.model import ChatMessageUser, ContentImage, ContentText, ModelOutput
    from inspect_ai.solver import TaskState

    image = f"data:image/png;base64,{base64.b64encode(Path(path).read_bytes()).decode()}" if data_uri else path
    message = ChatMessageUser(content=[ContentText(text="Describe."), ContentImage(image=image)])
    return TaskState(
        model="mock/model", sample_id=1, epoch=1, input="Describe.", messages=[message], metadata=metadata,
        output=ModelOutput.from_content("mock", text),
    )  # fmt: skip


def test_a_scorer_with_every_part(world, expected):
    from rewards.hosts.inspect_ai import reward_scorer

    paths, captions, config = world
    scorer, target = reward_scorer(config), inspect_scorer.Target("")
    for data_uri in (False, True):
        score = asyncio.run(scorer(state(paths[0], captions[0], data_uri), target))
        assert score.value["overall"] == pytest.approx(float(expected.overall[0]), abs=1e-5)
        assert score.value["fluency"] == pytest.approx(float(expected.criteria[0, 3]), abs=1e-5)
    unscored = asyncio.run(scorer(state("/none.png", captions[0]), target))
    assert isinstance(unscored.value, float) and math.isnan(unscored.value) and "none.png" in unscored.explanation
