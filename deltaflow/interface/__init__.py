"""What `delta.tables` offers: the methods, their documentation and the checks of their arguments.

Each class has two subclasses: one runs in a classic session (deltaflow.batch), one writes SQL for a session
of Spark Connect (deltaflow.connect). Nothing here needs a JVM.
"""
