"""Word-level mechanisms: one text in, one text out, metric differential privacy per word."""
