"""`python -m seeupo_theory.cli`."""

from seeupo_theory.cli import main

main()
