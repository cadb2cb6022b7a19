"""HarmonicEval: criterion-wise rating of texts about images by a vision-language model."""
