"""One module a step: plan, run, commit."""
