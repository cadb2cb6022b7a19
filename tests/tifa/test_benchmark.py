import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from PIL import Image
from typer.testing import CliRunner

from rewards.build import RewardSettings
from rewards.cli.tifa_bench import tifa_bench
from rewards.errors import InputError
from rewards.jobs.tifa_bench import TifaBenchSettings, TifaBenchTask, TifaBenchWorker, run_benchmark
from rewards.tifa.benchmark import plan_benchmark
from rewards.tifa.matching import AnswerMatcher
from rewards.tifa.questions.question import Question, read_questions
from rewards.tifa.results import entities, official_result, plot_summary, source, summary
from rewards.tifa.reward import TIFA
from rewards.tifa.store.store import QuestionStore
from tests import tiny_models

Ask = Callable[..., Question]
EXACT = AnswerMatcher(sentence_model=None)


class Bench(TifaBenchTask):
    """The benchmark of a TIFA that exists already."""

    def __init__(self, tifa: TIFA, images: Path, shard_size: int = 64) -> None:
        reward = RewardSettings(kind="tifa", judge="recorded", questions=str(tifa.questions.path))
        super().__init__(TifaBenchSettings(reward, shard_size=shard_size), images.parent)
        self.tifa = tifa

    def start(self, device: str | None = None) -> TifaBenchWorker:
        return TifaBenchWorker(self, self.tifa)


def bench(tifa: TIFA, images: Path, output: Path, **options: Any) -> dict[str, Any]:
    return run_benchmark(Bench(tifa, images, **options), plan_benchmark(tifa.questions, images), output)


@pytest.fixture
def official(store: QuestionStore, tifa_data: Path, recorded) -> SimpleNamespace:
    """The official sample, and a judge that gives the recorded answers."""
    result = json.loads((tifa_data / "sample_evaluation_result.json").read_text())
    rows = [row for part in result["question_details"].values() for row in part.values()]
    store.add(read_questions(tifa_data / "sample_question_answers.json"))
    judge = recorded({row["question"]: row["free_form_vqa"] for row in rows})
    return SimpleNamespace(
        result=result,
        judge=judge,
        store=store,
        tifa=TIFA(judge, store, matcher=EXACT),
        images=tifa_data / "sample_imgs.json",
    )


def test_the_official_result_is_reproduced(official: SimpleNamespace, tmp_path: Path) -> None:
    result = bench(official.tifa, official.images, tmp_path / "result.json")
    assert json.loads((tmp_path / "result.json").read_text()) == result
    numbers = result.pop("summary")
    last = list(result["question_details"]["drawbench_52"].values())[-1]
    assert last["free_form_vqa"] == "0" and last["multiple_choice_vqa"] is None
    last["multiple_choice_vqa"] = "1"  # the one answer that the official scorer matches by SBERT, wrongly
    assert result == official.result and list(result) == list(official.result)
    assert numbers["macro"]["mean"] == 0.8125 and numbers["pooled"]["mean"] == pytest.approx(16 / 19)
    assert numbers["by_source"] == {
        "coco": {"mean": 1.0, "prompts": 1}, "drawbench": {"mean": 0.625, "prompts": 1},
    }  # fmt: skip
    assert numbers["by_entities"] == {"2": {"mean": 1.0, "prompts": 1}, "3": {"mean": 0.625, "prompts": 1}}
    assert numbers["by_element_type"]["counting"] == {"mean": pytest.approx(1 / 3), "questions": 3}
    assert (numbers["prompts"], numbers["pictures"], numbers["questions"], numbers["unmatched"]) == (2, 2, 19, 1)
    assert 0.625 <= numbers["macro"]["interval"][0] <= 0.8125 <= numbers["macro"]["interval"][1] <= 1
    plot_summary(tmp_path / "plot.png", numbers)
    assert Image.open(tmp_path / "plot.png").size[0] > 500


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """`images.json` with two pictures of prompt a and one of prompt 5; one of a's is black."""
    for number, color in enumerate([(255, 0, 0), (0, 0, 0), (0, 0, 255)]):
        Image.new("RGB", (8, 8), color).save(tmp_path / f"{number}.png")
    (tmp_path / "images.json").write_text(json.dumps({"a": ["0.png", "1.png"], "5": "2.png"}))
    return tmp_path / "images.json"


def test_several_pictures_a_prompt_and_abstentions(
    pictures: Path, store: QuestionStore, ask: Ask, recorded, tmp_path: Path
) -> None:
    store.add([ask("q1", id="a"), ask("q2", answer="no", id="a"), ask("q1", id=5, prompt="five")])
    names = json.loads(pictures.read_text())
    Image.new("RGB", (8, 8), (0, 255, 0)).save(tmp_path / "3.png")
    pictures.write_text(json.dumps(names | {"a": ["0.png", "1.png", "3.png"]}))
    tifa = TIFA(recorded({}, default="yes"), store, matcher=EXACT)
    result = bench(tifa, pictures, tmp_path / "result.json")
    numbers = result["summary"]
    assert result["caption_scores"] == {"a": 0.5, "5": 1} and result["tifa_average"] == 0.75
    assert result["question_details"]["a"]["q1"]["free_form_vqa"] == ["yes", "yes"]
    assert result["question_details"]["a"]["q2"]["scores"] == 0 and result["question_details"]["5"]["q1"]["id"] == 5
    assert numbers["abstained"] == [{"id": "a", "image": "1.png", "reason": "the image is black throughout"}]
    assert numbers["pooled"]["mean"] == pytest.approx(3 / 5) and numbers["pictures"] == 3


def test_one_prompt_and_none_at_all_have_results(
    pictures: Path, store: QuestionStore, ask: Ask, recorded, tmp_path: Path
) -> None:
    store.add([ask(id=5)])
    tifa = TIFA(recorded({}, default="no"), store, matcher=EXACT)
    result = bench(tifa, pictures, tmp_path / "result.json")
    assert (result["tifa_average"], result["tifa_stdev"]) == (0, 0)
    assert result["summary"]["macro"]["interval"] == [None, None]
    empty = official_result([], {})
    assert empty["tifa_average"] is None and empty["question_details"] == {} and summary([], {})["prompts"] == 0


def test_a_stopped_run_goes_on_and_asks_anew_about_changed_pictures(
    pictures: Path, store: QuestionStore, ask: Ask, recorded, tmp_path: Path
) -> None:
    store.add([ask(id="a"), ask(id=5, prompt="five")])
    output, whole = tmp_path / "result.json", tmp_path / "whole.json"
    bench(TIFA(recorded({}, default="yes"), store, matcher=EXACT), pictures, whole, shard_size=1)

    class Stopping(recorded):  # type: ignore[misc, valid-type]
        def answer(self, images: Any, questions: Any) -> Any:
            if len(self.asked) == 1:
                raise KeyboardInterrupt
            return super().answer(images, questions)

    first = Stopping({}, default="yes")
    with pytest.raises(KeyboardInterrupt):
        bench(TIFA(first, store, matcher=EXACT), pictures, output, shard_size=1)
    assert len(first.asked) == 1 and not output.exists()
    judge = recorded({}, default="yes")
    bench(TIFA(judge, store, matcher=EXACT), pictures, output, shard_size=1)
    # The black picture is never asked about; the first one was.
    assert len(judge.asked) == 1 and output.read_bytes() == whole.read_bytes()
    assert not (tmp_path / "result.json.job").exists()
    # A picture that was drawn anew is asked about anew.
    output.unlink()
    with pytest.raises(KeyboardInterrupt):
        bench(TIFA(Stopping({}, default="yes"), store, matcher=EXACT), pictures, output, shard_size=1)
    Image.new("RGB", (8, 8), (9, 9, 9)).save(pictures.parent / "0.png")
    judge = recorded({}, default="no")
    bench(TIFA(judge, store, matcher=EXACT), pictures, output, shard_size=1)
    assert len(judge.asked) == 2


def test_a_run_with_other_questions_pictures_or_settings_is_refused(
    pictures: Path, store: QuestionStore, ask: Ask, recorded, tmp_path: Path
) -> None:
    store.add([ask(id="a"), ask(id=5, prompt="five")])
    output = tmp_path / "result.json"

    class Stopping(recorded):  # type: ignore[misc, valid-type]
        def answer(self, images: Any, questions: Any) -> Any:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bench(TIFA(Stopping({}, default="yes"), store, matcher=EXACT), pictures, output)
    judge = recorded({}, default="yes")
    with pytest.raises(InputError, match=r"rewards\.reward\.answer was 'free_form' and is now 'choices'"):
        bench(TIFA(judge, store, answer="choices"), pictures, output)
    names = json.loads(pictures.read_text())
    pictures.write_text(json.dumps(names | {"a": "0.png"}))
    with pytest.raises(InputError, match="begun with other pictures"):
        bench(TIFA(judge, store, matcher=EXACT), pictures, output)
    pictures.write_text(json.dumps(names))
    store.add([ask("new", id="a")])
    with pytest.raises(InputError, match=r"rewards\.reward\.questions was"):
        bench(TIFA(judge, store, matcher=EXACT), pictures, output)
    assert not judge.asked


def test_what_is_missing_is_known_before_the_run(pictures: Path, store: QuestionStore, ask: Ask) -> None:
    store.add([ask(id="a"), ask(id="b", prompt="b")])
    pictures.write_text(json.dumps({"a": ["0.png", "nowhere.png"], "z": "0.png"}))
    plan = plan_benchmark(store, pictures)
    assert [picture.name for picture in plan.pictures] == ["0.png"]
    assert plan.missing == [f"a: {pictures.parent / 'nowhere.png'}"]
    assert (plan.without_pictures, plan.without_questions) == (["b"], ["z"])
    store.add([ask(id=7, prompt="x"), ask(id="7", prompt="y")])
    with pytest.raises(InputError, match="the ids '7' and 7 are one key in JSON"):
        plan_benchmark(store, pictures)
    for content, reason in (("[]", "expected an object"), ('{"a": 3}', "id 'a' has 3"), ("{", "not JSON")):
        pictures.write_text(content)
        with pytest.raises(InputError, match=reason):
            plan_benchmark(store, pictures)


def test_sources_and_entities(ask: Ask) -> None:
    assert [source(id) for id in ("coco_1", "paintskill_499", "partiprompt_7", "mine_1", 3)] == [
        "coco", "paintskill", "partiprompt", "other", "other",
    ]  # fmt: skip
    rows = [("dog", "animal/human"), ("Dog ", "animal/human"), ("ball", "object"), ("red", "color"), ("pie", "food")]
    assert entities([ask(element=element, element_type=kind) for element, kind in rows]) == 3


@pytest.fixture
def command() -> Callable[..., object]:
    import typer

    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(tifa_bench)

    def run(*arguments: object) -> object:
        return CliRunner().invoke(app, [str(argument) for argument in arguments])

    return run


def test_command_scores_the_official_sample_with_a_real_blip(tifa_data: Path, tmp_path: Path, command) -> None:
    judge = tiny_models.save("blip", tmp_path / "blip")
    arguments = ["--questions", tifa_data / "sample_question_answers.json", "--judge", judge, "--answer", "choices"]
    output = tmp_path / "new" / "result.json"
    ran = command(
        *arguments, "--images", tifa_data / "sample_imgs.json", "--output", output, "--plot", tmp_path / "p.png"
    )
    assert ran.exit_code == 0, ran.output
    result = json.loads(output.read_text())
    official_keys = json.loads((tifa_data / "sample_evaluation_result.json").read_text())
    assert set(result) == set(official_keys) | {"summary"}
    assert result["summary"]["reward"]["answer"] == "choices" and len(result["summary"]["questions_fingerprint"]) == 32
    assert "mean over prompts" in ran.output and (tmp_path / "p.png").exists()
    assert [path.name for path in output.parent.iterdir()] == ["result.json"]  # no journal stays behind
    # A file that this command did not write, or was given, is left alone.
    (tmp_path / "notes.json").write_text('{"mine": 1}')
    for foreign in (tmp_path / "notes.json", tifa_data / "sample_imgs.json"):
        before = foreign.read_bytes()
        refused = command(*arguments, "--images", tifa_data / "sample_imgs.json", "--output", foreign)
        assert isinstance(refused.exception, InputError) and foreign.read_bytes() == before
    # A missing picture is one line at the start, and nothing was loaded or written.
    (tmp_path / "images.json").write_text(
        '{"coco_301091": "gone.jpg", "drawbench_52": "%s"}' % (tifa_data / "drawbench_52.jpg")
    )
    missing = command(*arguments, "--images", tmp_path / "images.json", "--output", tmp_path / "r.json")
    assert missing.exit_code != 0 and isinstance(missing.exception, InputError)
    assert "missing picture: coco_301091: " in missing.output and not (tmp_path / "r.json").exists()
    skipped = command(
        *arguments, "--images", tmp_path / "images.json", "--output", tmp_path / "r.json", "--skip-missing"
    )
    assert skipped.exit_code == 0 and list(json.loads((tmp_path / "r.json").read_text())["caption_scores"]) == [
        "drawbench_52"
    ]
