"""Caption benchmarks with human judgments (HarmonicEval §4.3): one file a published format.

| benchmark | file here | statistic in the paper |
|---|---|---|
| Flickr8k-EX | flickr8k.py | Kendall tau-c, each expert's judgment an item |
| Flickr8k-CF | flickr8k.py | Kendall tau-b, the share of yes an item |
| Composite | composite.py | Kendall tau-c |
| PASCAL-50S | pascal50s.py | accuracy by class HC, HI, HM, MM |
| FOIL | foil.py | accuracy with 1 and with 4 references |

The data sets themselves are not shipped; the readers were written from their published formats and tested on small
files of the same form. A row that cannot be used is an error that names file, row and reason. Rows that the published
protocols leave out on purpose are counted in `Reading.notes`.
"""
