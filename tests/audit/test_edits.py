"""One false detail by rule: the right word, in its capitals, with its article, and nothing else."""

import difflib
import json
import os
import re
from pathlib import Path

import pytest

from rewards.audit.edits import KINDS, false_texts, vocabulary_of

SHARED = Path(os.environ.get("REWARDS_SHARED", Path(__file__).resolve().parents[2] / ".." / "shared"))
CAPTIONS = SHARED / "data" / "thumb" / "mscoco_THumB-1.0.jsonl"


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        ("color", "A dog on a red couch.", "A dog on an orange couch."),
        ("color", "Red and blue kites", "Orange and blue kites"),
        ("background", "a red circle on a gray background", "a red circle on a white background"),
        ("count", "Two dogs run", "Three dogs run"),
        ("object", "An elephant near a tree", "A dog near a tree"),
        ("object", "a woman with her dog", "a man with her dog"),
        ("attribute", "a big dog", "a small dog"),
        ("attribute", "A man is sitting on a bench", "A man is standing on a bench"),
        ("relation", "a cup on top of a table", "a cup underneath a table"),
        ("relation", "a circle left of a square", "a circle right of a square"),
        ("location", "a man on the beach", "a man on the street"),
        ("negation", "a dog with a ball", "a dog without a ball"),
        ("negation", "A man is running", "A man is not running"),
        ("invented", "A man runs.", "A man runs with a red umbrella."),
        ("invented", "a cat on a gray background", "a cat and a bicycle on a gray background"),
        ("omitted", "A man, a dog with a cat.", "A man, a dog."),
    ],
)
def test_rules(kind, text, expected):
    assert expected in false_texts(text, kind)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("color", "a gray background"),  # the background's colour is a kind of its own
        ("background", "a gray dog in the background"),
        ("location", "a cup on top of a table"),  # a relation, not a place
        ("color", "Fred was tired"),  # "red" inside a word
        ("count", "a dog"),
        ("omitted", "A dog"),
        ("negation", "A man is not running"),
        ("negation", "There is no dog"),
        ("negation", "a roof covered with snow"),  # "covered without" is no English
        ("object", "A banana tree"),  # no banana
        ("object", "an umbrella hat"),
        ("location", "a bathroom table"),
        ("attribute", "a boat sitting in the water"),  # it may as well be said to stand
        ("relation", "clothes all over"),
        ("relation", "He looks outside."),
        ("omitted", "A red, blue and yellow boat"),
        ("omitted", "A cat between a dog and a bird"),
        ("omitted", "A plate of ham, eggs and toast"),
        ("omitted", "A roof covered with snow"),
        ("color", ""),
        ("invented", ""),
    ],
)
def test_what_is_not_there_is_not_changed(kind, text):
    assert false_texts(text, kind) == []


@pytest.mark.parametrize(
    ("kind", "text", "same"),
    [
        ("color", "a gray cat", "a grey cat"),
        ("object", "a bike", "a bicycle"),
        ("object", "a duck", "a bird"),
        ("location", "in a park", "in a field"),
    ],
)
def test_the_same_in_other_words_is_no_false_detail(kind, text, same):
    edits = false_texts(text, kind)
    assert edits and same not in edits


def test_words_come_from_the_users_own_texts_where_they_have_some():
    spoken = vocabulary_of(["a red circle on a gray background", "a blue square on a white background"])
    assert false_texts("a red circle on a gray background", "background", spoken) == [
        "a red circle on a white background"
    ]
    assert false_texts("a red circle on a gray background", "color", spoken) == ["a blue circle on a gray background"]
    assert len(false_texts("two dogs", "count", spoken)) > 5  # no number is spoken there: all of the list


@pytest.fixture(scope="module")
def captions():
    if not CAPTIONS.exists():
        pytest.skip(f"no {CAPTIONS}: the captions of THumB are not at hand")
    rows = [json.loads(line) for line in CAPTIONS.read_text(encoding="utf-8").splitlines()]
    human = [row["hyp"].strip() for row in rows if row["SYS"] == "Human"] or [row["hyp"].strip() for row in rows]
    return list(dict.fromkeys(human))[:200]


def test_on_real_captions_one_place_changes(captions):
    found = dict.fromkeys(KINDS, 0)
    for text in captions:
        for kind in KINDS:
            for changed in false_texts(text, kind):
                found[kind] += 1
                blocks = difflib.SequenceMatcher(None, text.split(), changed.split(), autojunk=False).get_opcodes()
                edits = [block for block in blocks if block[0] != "equal"]
                assert len(edits) == 1, (kind, text, changed)  # an article and its noun stand side by side
                assert not re.search(r"\ba [aeiou]\w|\ban [^aeiou\W]\w", _near(changed, edits[0])), changed
                assert changed[:1].isupper() == text[:1].isupper() or kind == "omitted"
    assert all(count >= 5 for kind, count in found.items() if kind != "background"), found


def _near(text, edit):
    """The changed words with the one before: where the rule wrote."""
    return " ".join(text.split()[max(0, edit[3] - 1) : edit[4]]).lower()
