"""How agreement is measured.

- agreement.py: `agreement`, `difference`: every statistic by its name, with clustered intervals and the paired test
- named.py: tau-a, -b, -c and pairwise accuracy from pair counts; the rules for ties
- pair_counts.py: concordant, discordant and tied pairs in O(n log n)
- resampling.py: the clustered bootstrap
"""
