"""Proving a suspect by measuring it: the same work on all ranks at the same moments, each judged against its peers.

In: who is to be measured. Out: what was measured, and a verdict for each rank and link with its numbers.
Must not import anything of Pacehound but `pacehound.errors`, `pacehound.model` and `pacehound.pages`; torch only in
`measure` and `process`, which run in processes of their own.
"""
