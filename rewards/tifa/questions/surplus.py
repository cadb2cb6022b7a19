"""Is there anything else? A question on what a prompt does not name, made by rule from the questions on what it does.

TIFA asks what the prompt says (§3.1), so that a policy may draw more than that and lose nothing. Neither the paper nor
its released questions have this kind; it is an option of :func:`rewards.tifa.questions.generation.build_questions`.
"""

from __future__ import annotations

from collections.abc import Sequence

from rewards.tifa.questions.question import ENTITY_TYPES, Question

SURPLUS = "surplus"
"""The element type of such questions: a curve of its own."""


def surplus_question(questions: Sequence[Question]) -> Question | None:
    """The question whether a picture shows anything that the prompt does not name; the right answer is no.

    A picture with an object too many is wrong by it, whatever the object. So is a plain dog on a lawn where the prompt
    is "a dog": ask it of prompts that mean to name all there is.

    Args:
        questions: Of one prompt. Elements of the entity types and of locations are what it names.

    Returns:
        The question, or None where the questions name nothing.

    Example:
        >>> dog = Question("is there a dog?", ("yes", "no"), "yes", "dog", "animal/human", "a dog on grass")
        >>> grass = Question("is there grass?", ("yes", "no"), "yes", "grass", "location", "a dog on grass")
        >>> surplus_question([dog, grass]).text
        'Is there anything other than these in the picture: dog, grass?'
    """
    named = [q.element for q in questions if q.element_type in ENTITY_TYPES | {"location"} and q.element]
    if not named:
        return None
    elements = ", ".join(dict.fromkeys(named))
    return Question(
        text=f"Is there anything other than these in the picture: {elements}?",
        choices=("yes", "no"),
        answer="no",
        element=elements,
        element_type=SURPLUS,
        prompt=questions[0].prompt,
        id=questions[0].id,
    )
