"""Agreement with people: does a reward agree with human judgments, and what is each part of it worth?

- agreement.py: `agreement`, `difference`: named statistics with clustered intervals
- statistics.py, pair_counts.py, resampling.py: tau-a, -b, -c and pairwise accuracy; counting pairs; the bootstrap
- tifa_study.py: TIFA's human study (TIFA table 2)
- mmhe.py, candidate_scores.py, best_of_three.py: MMHE's records, a metric's scores, HarmonicEval's tables 2, 3, 5, 6
- captions/: Flickr8k-EX and -CF, Composite, PASCAL-50S, FOIL (HarmonicEval tables 8, 9)
"""
