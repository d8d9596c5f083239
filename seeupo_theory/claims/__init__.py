"""The ledger: every claim of the paper, a computed verdict, and the instance that shows it.

* ``ledger``: what a row is, and how a ledger is written;
* ``checks``: one module a claim (C1–C9) and one for the cells of Table 1;
* ``audit``: runs the checks, resumes, never leaves half a ledger;
* ``falsify``: searches counterexamples to a user's own algorithm.
"""
