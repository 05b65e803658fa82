"""Evolution mechanisms: private records vote, noise is added, the rest is post-processing."""
