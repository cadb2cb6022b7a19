"""Agreement with people: does a reward agree with human judgments, and what is each part of it worth?

- statistics/: named statistics (three taus are three numbers), clustered bootstrap, the test of a difference
- metrics/: what is compared with people: HarmonicEval, one overall prompt, FLEUR, CLIPScore, BLEU to CIDEr
- of pictures: tifa_study.py (TIFA table 2), dsg/ (VQA answers with dependencies against Likert ratings), geneval/ (what
  people saw: counts, colours, positions)
- of texts: mmhe/ (HarmonicEval's tables 2, 3, 5, 6), captions/ (Flickr8k, Composite, PASCAL-50S, FOIL: tables 8, 9),
  thumb/ (captions rated by criterion), pairs/ (which of two responses is better: VL-RewardBench)
- shapes_study/: the tables of MMHE without humans, from the shapes world's truth
- probe.py, explanations.py: is a judge as certain as it is right; why did a text get its ratings
- files.py, columns.py: rows and columns of files in, each bad one named; tables.py: numbers with intervals as cells
"""
