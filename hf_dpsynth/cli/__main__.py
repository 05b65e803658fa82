"""`python -m hf_dpsynth.cli`."""

from hf_dpsynth.cli import main

main()
