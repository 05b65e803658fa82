"""Models: protocols, the catalogue of short names, assets as files, and the local back ends."""
