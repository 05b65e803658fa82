"""Private prediction: private texts stand in the prompts of a local model, and its tokens leave with noise."""
