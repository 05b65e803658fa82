"""How figures look: colours for light and dark pages, and pictures that hold no date, path or name of a machine."""
