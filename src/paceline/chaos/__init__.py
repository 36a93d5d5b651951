"""FAULTS on purpose: which ones a job is to survive, as text and as values. Pure; `resilience` lets them strike."""
