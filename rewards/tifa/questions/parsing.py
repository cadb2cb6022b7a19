"""What a language model wrote -> questions. Keeps what is good, says what it dropped and why, and never raises.

The lines wanted are those of the released code and of the examples in `prompts/examples.txt`:

    About three (counting):
    Q: how many dogs are there?
    Choices: 1, 2, 3, 4
    A: 3

Models number them, set them in bold, leave out blanks, write the answer before the choices, list the choices one a
line, nest parentheses in the element, or stop in the middle of a word.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, field
from hashlib import blake2b

from rewards.errors import InputError
from rewards.tifa.normalization import collapse_blanks, normalize_answer
from rewards.tifa.questions.question import ELEMENT_TYPES, Question

_TYPE_NAMES = {name: name for name in ELEMENT_TYPES} | {
    "human": "animal/human", "animal": "animal/human", "colour": "color", "count": "counting", "number": "counting",
}  # fmt: skip
"""How models name types -> the benchmark's twelve, which have "human" and "animal" as one."""

_DECORATION = re.compile(r"^(?:[\s>#*•·_`–-]+|\(?\d{1,3}[.)]\s+)+")
_LABEL = re.compile(
    r"^(?P<label>about|q(?:uestion)?|choices?|options?|a(?:nswer)?)(?P<number>\s*\d{0,3})\b\s*[*_]*"
    r"(?P<colon>\s*[:：])?[*_\s]*(?P<rest>.*)$",
    re.IGNORECASE,
)
_BEFORE_CHOICES = re.compile(r"(?<=[\s?？.。,，;])[*_(]*(?=(?:choices?|options?|answer)[*_]*\s*[:：])", re.IGNORECASE)
_BEFORE_ANSWER = re.compile(r"(?<=[\s?？.。,，;])[*_(]*(?=a[*_]*\s*[:：])", re.IGNORECASE)
_CHOICES = re.compile(r"^(?:choices?|options?)\b", re.IGNORECASE)
_HEADER = re.compile(r"^(?P<element>.*?)\s*[(（](?P<type>[^()（）]*)[)）]\s*[:：]?\s*$")
_LETTER = re.compile(r"^[(（]?([A-Ha-h])[)）.]\s*")
_LETTERS_INSIDE = re.compile(r"\s*[,;]?\s*[(（]?\b[A-Ha-h][)）]\s*")
_SEPARATORS = [re.compile(mark) for mark in (r"\|", "[；;]", r"[，、]|(?<!\d),|,(?!\d{3}\b)")]
_QUOTES = "\"“”„«»「」'"
_NEXT_EXAMPLE = re.compile(r"^(description|caption|input)\s*[:：]", re.IGNORECASE)


@dataclass(frozen=True)
class Parsed:
    """What came out of one output.

    Attributes:
        questions: The good ones, in order.
        dropped: One line for everything else that looked like a question: what and why.
    """

    questions: list[Question] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)


def parse_output(output: str, prompt: str, id: str | int = "", seed: int = 0, cut_off: bool = False) -> Parsed:
    """Read the questions in a model's output.

    Args:
        output: Anything.
        prompt: The description that it was asked about.
        id: The prompt's id; default: the prompt itself.
        seed: Decides, together with prompt and question, the order of the choices; the seed of each question is kept
            in its row as `choices_seed`.
        cut_off: Whether the output ended because it was too long: its last line may then be half a line and is
            dropped.

    Returns:
        Questions that are complete, have at least two different choices, an answer among them and a known element
        type, each text once; and what was dropped.

    Example:
        >>> output = "About red (color):\\nQ: what color is it?\\nChoices:red,blue\\nA: red\\nQ: is"
        >>> parsed = parse_output(output, "a red dot")
        >>> parsed.questions[0].answer, parsed.dropped
        ('red', ["question 'is': no choices"])
    """
    reader = _Reader(prompt, id, seed)
    lines = _lines(output)
    if cut_off and lines and not output.endswith("\n"):
        reader.parsed.dropped.append(f"last line {lines.pop()!r}: cut off")
    for line in lines:
        if not reader.read(line):
            break
    reader.finish()
    return reader.parsed


def _lines(output: str) -> list[str]:
    # A model that thinks aloud may quote the format in its thoughts.
    output = output.rsplit("</think>", 1)[-1]
    lines = []
    for line in output.splitlines():
        plain = _DECORATION.sub("", line).strip().rstrip("*_`").strip()
        for part in _BEFORE_CHOICES.split(plain):
            # "A:" inside a question is the question's; after choices it is the answer.
            lines.extend(_BEFORE_ANSWER.split(part) if _CHOICES.match(part) else [part])
    return [line.strip() for line in lines if line.strip()]


class _Reader:
    """The element and the question that are being read."""

    def __init__(self, prompt: str, id: str | int, seed: int) -> None:
        self.parsed = Parsed()
        self._prompt, self._id, self._seed = prompt, id, seed
        self._header: tuple[str, str | None] | None = None
        self._header_used = True
        self._text: str | None = None
        self._choices: list[str] | None = None
        self._answer: str | None = None
        self._seen: set[str] = set()
        self._listing = False

    def read(self, line: str) -> bool:
        """Take one line; False where the model began to write an example of its own."""
        if _NEXT_EXAMPLE.match(line):
            started = self._header is not None
            if started:
                self.parsed.dropped.append(f"everything from {line[:60]!r} on: another description")
            return not started
        match = _LABEL.match(line)
        label = match["label"].lower()[:2] if match else ""
        if match and label == "ab" and (line.startswith("About ") or "(" in line) and not self._listing:
            self._start_element(match["rest"])
        elif match is None or label == "ab" or match["colon"] is None:
            if self._listing and self._choices is not None:
                self._choices.extend(_split_choices(line))
        elif label.startswith("q"):
            self._start_question(match["rest"])
        elif label[0] == "a":
            self._listing = False
            self._answer = match["rest"] if self._text is not None and self._answer is None else self._answer
        elif self._text is not None and self._choices is None:
            self._choices = _split_choices(match["rest"])
            self._listing = not self._choices
        return True

    def finish(self) -> None:
        self._close_question()
        self._close_element()

    def _start_element(self, rest: str) -> None:
        self.finish()
        match = _HEADER.match(rest)
        if match and match["element"]:
            self._header = (match["element"].strip(_QUOTES + " "), _element_type(match["type"]))
        else:
            self._header = (rest.rstrip(":： "), None)
        self._header_used = False

    def _start_question(self, text: str) -> None:
        self._close_question()
        self._text, self._header_used = text.strip(_QUOTES + " "), True

    def _close_element(self) -> None:
        if not self._header_used and self._header is not None:
            self.parsed.dropped.append(f"element {self._header[0]!r}: no questions")
        self._header_used = True

    def _close_question(self) -> None:
        if self._text is not None:
            question = self._question()
            if isinstance(question, Question):
                self.parsed.questions.append(question)
                self._seen.add(normalize_answer(question.text))
            else:
                self.parsed.dropped.append(f"question {self._text!r}: {question}")
        self._text = self._choices = self._answer = None
        self._listing = False

    def _question(self) -> Question | str:
        """The question, or why there is none."""
        text, header = self._text or "", self._header
        if not text:
            return "empty"
        if header is None:
            return "it belongs to no element"
        element, element_type = header
        if element_type is None:
            return f"element {element!r} has no known type"
        if not self._choices:
            return "no choices"
        if not self._answer:
            return "no answer"
        if normalize_answer(text) in self._seen:
            return "repeated"
        choices = _distinct(self._choices)
        if len(choices) < 2:
            return "fewer than two different choices"
        answer = _find_answer(self._answer, self._choices)
        if answer is None:
            return f"the answer {self._answer!r} is not among the choices {self._choices}"
        answer = next(choice for choice in choices if normalize_answer(choice) == normalize_answer(answer))
        seed = _question_seed(self._seed, self._prompt, text)
        random.Random(seed).shuffle(choices)
        try:
            return Question(
                text, tuple(choices), answer, element, element_type, self._prompt, self._id, {"choices_seed": seed}
            )
        except InputError as error:
            return str(error)


def _element_type(written: str) -> str | None:
    name = collapse_blanks(written.casefold()).strip(" .:*_")
    for candidate in (name, name.removesuffix("s"), re.split(r"\s*[/,]\s*", name)[0]):
        if candidate in _TYPE_NAMES:
            return _TYPE_NAMES[candidate]
    return None


def _split_choices(text: str) -> list[str]:
    text = text.strip().strip("[]")
    lettered = len(re.findall(r"[(（]?\b[A-Ha-h][)）]", text)) > 1
    if lettered:
        parts = _LETTERS_INSIDE.split(text)
    else:
        separator = next((mark for mark in _SEPARATORS if mark.search(text)), None)
        parts = separator.split(text) if separator else [text]
    cleaned = (_LETTER.sub("", collapse_blanks(part).strip(_QUOTES + " ")).rstrip(".。") for part in parts)
    return [part for part in cleaned if part]


def _find_answer(answer: str, choices: list[str]) -> str | None:
    """The choice that the answer names: in words, with its letter, or by its letter alone."""
    answer = collapse_blanks(answer).strip(_QUOTES + "[]*_ ")
    by_form = {normalize_answer(choice): choice for choice in reversed(choices)}
    for candidate in (answer, _LETTER.sub("", answer)):
        if candidate and normalize_answer(candidate) in by_form:
            return by_form[normalize_answer(candidate)]
    letter = re.fullmatch(r"[(（]?([A-Ha-h])[)）.]?", answer)
    position = ord(letter[1].lower()) - ord("a") if letter else len(choices)
    return choices[position] if position < len(choices) else None


def _distinct(choices: list[str]) -> list[str]:
    by_form: dict[str, str] = {}
    for choice in choices:
        by_form.setdefault(normalize_answer(choice), choice)
    return list(by_form.values())


def _question_seed(seed: int, prompt: str, text: str) -> int:
    """32 bits that depend on nothing but their inputs: a question's choices keep their order whatever its company."""
    digest = blake2b(f"{seed}\n{collapse_blanks(prompt)}\n{text}".encode("utf-8", "replace"), digest_size=4).digest()
    return int.from_bytes(digest, "big")
