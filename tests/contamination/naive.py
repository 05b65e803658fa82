"""Overlaps by other means: a suffix array of the private texts, and windows of public ones as strings."""

import bisect

TOP = chr(0x10FFFF)


def suffixes(private, window):
    """All places in the private texts, in the order of the tokens that follow: a suffix array, cut at a window."""
    texts = [text.split() for text in private if text]
    return sorted(text[at : at + window] for text in texts for at in range(len(text)))


def windows(private, public, window):
    """(row, start) of each window of public texts that a private text has."""
    array = suffixes(private, window)
    found = []
    for row, text in enumerate(public):
        tokens = (text or "").split()
        for start in range(len(tokens) - window + 1):
            wanted = tokens[start : start + window]
            at = bisect.bisect_left(array, wanted)
            if at < len(array) and array[at] == wanted:
                found.append((row, start))
    return found


def spans(found, window):
    """Windows that overlap or touch, as (row, start, end)."""
    covered = sorted({(row, start + step) for row, start in found for step in range(window)})
    made = []
    for row, at in covered:
        if made and made[-1][0] == row and made[-1][2] == at:
            made[-1] = (row, made[-1][1], at + 1)
        else:
            made.append((row, at, at + 1))
    return made


def private_found(private, public, window):
    """How many private texts hold a window of a public one."""
    known = {tuple(text.split()[at : at + window]) for text in public if text for at in range(len(text.split()))}
    rows = 0
    for text in private:
        tokens = (text or "").split()
        rows += any(tuple(tokens[at : at + window]) in known for at in range(len(tokens) - window + 1))
    return rows
