"""Word lists of the editing rules: words of one group can stand for one another in a sentence."""

from __future__ import annotations

COLORS = (
    "red", "orange", "yellow", "green", "blue", "purple", "pink", "brown", "black", "white", "gray", "grey", "silver",
    "golden", "cyan", "magenta",
)  # fmt: skip

NUMBERS = ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")

OBJECTS = (
    ("dog", "cat", "horse", "cow", "sheep", "bear", "elephant", "zebra", "giraffe", "bird", "duck"),
    ("dogs", "cats", "horses", "cows", "sheep", "bears", "elephants", "zebras", "giraffes", "birds", "ducks"),
    ("man", "woman"), ("boy", "girl"), ("men", "women"), ("boys", "girls"),
    ("car", "bus", "truck", "train", "motorcycle", "bicycle", "bike", "boat", "airplane", "plane"),
    ("cars", "buses", "trucks", "trains", "motorcycles", "bicycles", "bikes", "boats", "airplanes", "planes"),
    ("chair", "couch", "bed", "bench"),
    ("pizza", "sandwich", "cake", "salad", "banana", "apple", "orange", "donut"),
    ("laptop", "phone", "camera", "clock", "book", "umbrella", "suitcase", "kite", "ball", "frisbee"),
    ("circle", "square", "triangle"),
    ("circles", "squares", "triangles"),
)  # fmt: skip

SAME = (
    {"gray", "grey", "silver"}, {"yellow", "golden"}, {"blue", "cyan"}, {"pink", "magenta"}, {"purple", "magenta"},
    {"bird", "duck"}, {"birds", "ducks"}, {"bike", "bicycle", "motorcycle"}, {"bikes", "bicycles", "motorcycles"},
    {"airplane", "plane"}, {"airplanes", "planes"}, {"park", "field", "forest"},
    {"car", "truck"}, {"cars", "trucks"},
)  # fmt: skip
"""Words that people use for one and the same thing: never put in each other's place."""

LIVING = frozenset(
    "dog cat horse cow sheep bear elephant zebra giraffe bird duck dogs cats horses cows bears elephants zebras "
    "giraffes birds ducks man woman boy girl men women boys girls person people child children kid kids guy lady "
    "player players baby skier surfer animal animals".split()
)

ATTRIBUTES = {
    "big": "small", "large": "small", "small": "large", "little": "big", "tall": "short", "young": "old",
    "wooden": "metal", "metal": "wooden", "wet": "dry", "dry": "wet", "empty": "full", "clean": "dirty",
    "dirty": "clean", "sunny": "rainy", "rainy": "sunny", "smiling": "crying", "walking": "running",
    "running": "walking",
}  # fmt: skip
"""A word and its opposite."""

POSTURES = {"sitting": "standing", "standing": "sitting", "lying": "standing"}
"""Of whoever is alive: a boat may be said to sit or to stand."""

RELATIONS = (
    ("to the left of", "to the right of"), ("left of", "right of"), ("on top of", "underneath"), ("above", "below"),
    ("over", "under"), ("in front of", "behind"), ("inside", "outside"), ("next to", "far away from"),
    ("near", "far away from"),
)  # fmt: skip

LOCATIONS = (
    ("beach", "street"),
    ("park", "field", "forest", "kitchen", "bathroom", "bedroom", "office", "restaurant", "airport"),
    ("grass", "snow", "sand"),
    ("indoors", "outdoors"),
)  # fmt: skip

BACKDROPS = ("background", "backdrop", "wall", "sky")
"""What a colour before it belongs to the background."""

INVENTED = (
    "a red umbrella", "a small dog", "a bicycle", "three balloons", "a wooden chair", "an open book", "a blue square",
    "a green triangle",
)  # fmt: skip

AFTER_NOUNS = frozenset(
    "a an the and or but with without on in at by of to from near next beside behind above below over under inside "
    "outside underneath between among around across along through into onto off up down while as that which who is are "
    "was were has have left right far against for during after before it its his her their this these there "
    "sits stands lies looks holds walks runs rides plays eats flies wears".split()
)
"""What may follow a whole noun; before anything else (`tree`, `hat`) a noun belongs to the next one."""
