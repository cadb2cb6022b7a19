"""Agreement with people: does a reward agree with human judgments, and what is each part of it worth?

- statistics/: named statistics (three taus are three numbers), clustered bootstrap, the test of a difference
- metrics/: what is compared with people: HarmonicEval, one overall prompt, FLEUR, CLIPScore, BLEU to CIDEr
- tifa_study.py: TIFA's human study (TIFA table 2)
- dsg/: DSG's human study: VQA answers with dependencies against Likert ratings
- mmhe/: MMHE's instances and HarmonicEval's tables 2, 3, 5, 6
- captions/: Flickr8k-EX and -CF, Composite, PASCAL-50S, FOIL (HarmonicEval tables 8, 9)
- shapes_study/: the same tables without humans, from the shapes world's truth
- probe.py, explanations.py: is a judge as certain as it is right; why did a text get its ratings
- files.py, columns.py, tables.py: rows of people's files in, each bad one named; plain-text tables out
"""
