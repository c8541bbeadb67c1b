"""Arithmetic that several codecs share: transforms, selection, quantization, exact sums, random numbers."""
