"""Measuring: plain against speculative decoding, and what surefoot's own code costs."""
