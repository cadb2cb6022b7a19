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
    ("man", "woman", "boy", "girl"),
    ("men", "women", "boys", "girls"),
    ("car", "bus", "truck", "train", "motorcycle", "bicycle", "bike", "boat", "airplane", "plane"),
    ("cars", "buses", "trucks", "trains", "motorcycles", "bicycles", "bikes", "boats", "airplanes", "planes"),
    ("table", "chair", "couch", "bed", "desk", "bench"),
    ("pizza", "sandwich", "cake", "salad", "banana", "apple", "orange", "donut"),
    ("laptop", "phone", "camera", "clock", "book", "umbrella", "suitcase", "kite", "ball", "frisbee"),
    ("circle", "square", "triangle"),
    ("circles", "squares", "triangles"),
)  # fmt: skip

ATTRIBUTES = (
    ("big", "small"), ("large", "small"), ("little", "huge"), ("tall", "short"), ("long", "short"), ("young", "old"),
    ("wooden", "metal"), ("open", "closed"), ("wet", "dry"), ("empty", "full"), ("clean", "dirty"), ("sunny", "rainy"),
    ("sitting", "standing"), ("standing", "lying"), ("walking", "running"), ("smiling", "crying"),
)  # fmt: skip

RELATIONS = (
    ("to the left of", "to the right of"), ("left of", "right of"), ("on top of", "underneath"), ("above", "below"),
    ("over", "under"), ("in front of", "behind"), ("inside", "outside"), ("next to", "far away from"),
    ("near", "far away from"), ("up", "down"),
)  # fmt: skip

LOCATIONS = (
    ("beach", "street", "park", "field", "forest", "kitchen", "bathroom", "bedroom", "office", "restaurant", "airport"),
    ("top", "bottom"),
    ("grass", "snow", "sand"),
    ("indoors", "outdoors"),
)  # fmt: skip

BACKDROPS = ("background", "backdrop", "wall", "sky")
"""What a colour before it belongs to the background."""

INVENTED = (
    "a red umbrella", "a small dog", "a bicycle", "three balloons", "a wooden chair", "an open book", "a blue square",
    "a green triangle",
)  # fmt: skip
