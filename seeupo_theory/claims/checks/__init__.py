"""One module a claim, or a few that share an experiment; `seeupo_theory.claims.audit.CHECKS` lists them."""
