"""Faults for pipelines: a plugin of pytest that kills and disturbs them at every step.

    pytest_plugins = "deltaflow.testing"  # in conftest.py

    def test_copy(fault_trials):
        fault_trials.run("my_pipelines:copy")

In production nothing of it is loaded: it wraps the stores of the processes that it starts. It needs pytest,
which deltaflow does not bring.
"""

# Of pytest; the processes that run pipelines do without it.
pytest_plugins = "deltaflow.testing.plugin"
