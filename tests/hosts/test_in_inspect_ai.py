"""inspect-ai's own states, scores and evaluation (`make test-hosts`)."""

import asyncio
import base64
import math
from pathlib import Path

import pytest

from tests.hosts.pages import snippet

pytestmark = pytest.mark.hosts


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
    from inspect_ai.scorer import Target

    from rewards.hosts.inspect_ai import reward_scorer

    paths, captions, config = world
    scorer, target = reward_scorer(config), Target("")
    for data_uri in (False, True):
        score = asyncio.run(scorer(state(paths[0], captions[0], data_uri), target))
        assert score.value["overall"] == pytest.approx(float(expected.overall[0]), abs=1e-5)
        assert score.value["fluency"] == pytest.approx(float(expected.criteria[0, 3]), abs=1e-5)
    unscored = asyncio.run(scorer(state("/none.png", captions[0]), target))
    assert isinstance(unscored.value, float) and math.isnan(unscored.value) and "none.png" in unscored.explanation


def test_the_lines_of_the_page_are_evaluated(world, expected, tmp_path, monkeypatch):
    import inspect_ai
    import tiktoken
    from inspect_ai.dataset import Sample
    from inspect_ai.model import ChatMessageUser, ContentImage, ContentText, ModelOutput, get_model
    from inspect_ai.solver import generate

    class Characters:
        """In the place of the vocabulary with which inspect counts tokens: it is fetched from the network."""

        def encode(self, text, **options):
            return list(text)

    monkeypatch.setattr(tiktoken, "get_encoding", lambda name: Characters())
    paths, captions, config = world
    monkeypatch.chdir(Path(config).parent)

    def asked(*content):
        return Sample(input=[ChatMessageUser(content=[ContentText(text="Describe."), *content])])

    dataset = [*(asked(ContentImage(image=path)) for path in paths), asked()]
    names = {"Task": inspect_ai.Task, "dataset": dataset, "generate": generate}
    lines = snippet("inspect_ai").splitlines()
    exec("\n".join([*lines[:-1], f"task = {lines[-1]}"]), names)
    said = [ModelOutput.from_content("mockllm/model", text) for text in [*captions, "unseen"]]
    model = get_model("mockllm/model", custom_outputs=said)
    options = {"display": "none", "log_dir": str(tmp_path), "max_samples": 1}
    (log,) = inspect_ai.eval(names["task"], model=model, **options)
    assert log.status == "success", log.error
    found = {score.name: score for score in log.results.scores}
    assert (found["overall"].scored_samples, found["overall"].unscored_samples) == (3, 1)
    mean = found["overall"].metrics["mean"].value
    assert mean == pytest.approx(float(expected.overall.double().mean()), abs=1e-5)
    fluency = found["fluency"].metrics["mean"].value
    assert fluency == pytest.approx(float(expected.criteria[:, 3].double().mean()), abs=1e-5)
