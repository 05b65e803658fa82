"""What a reader gets beside released rows: privacy.json, the dataset card, and the check of both."""
