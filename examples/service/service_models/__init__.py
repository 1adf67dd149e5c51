"""Models of the example service that need Python code: torch.package stores these modules.

A class that needs a library imports it in its module: the workers' Python has it (extern). None of
them depends on isopool.
"""
