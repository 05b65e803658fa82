"""Private text made usable inside the Hugging Face ecosystem."""
