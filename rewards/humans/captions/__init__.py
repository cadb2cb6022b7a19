"""Caption benchmarks with human judgments (HarmonicEval §4.3): one file a published format.

| benchmark | file here | statistic in the paper |
|---|---|---|
| Flickr8k-EX | flickr8k.py, fleur.py (JSON) | Kendall tau-c, each expert's judgment an item |
| Flickr8k-CF | flickr8k.py, fleur.py (JSON) | Kendall tau-b, the share of yes an item |
| Composite | composite.py | Kendall tau-c |
| PASCAL-50S | pascal50s.py, fleur.py (JSON) | accuracy by class HC, HI, HM, MM |
| FOIL | foil.py | accuracy with 1 and with 4 references |

- records.py: judged captions, pairs of captions, and how a metric is compared with them
- fleur.py: the FLEUR repository's JSON forms, and its released scores
- benchmarks.py: the five by name; study.py: several metrics on one of them, beside the published numbers

The data sets themselves are not shipped. A row that cannot be used is an error that names file, row and reason. Rows
that the published protocols leave out on purpose are counted in `Reading.notes`.
"""
