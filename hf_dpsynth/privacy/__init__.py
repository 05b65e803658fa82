"""The privacy core: accounting, noise, keys, selection, ledger, budget. Privacy code is written here and only here."""
