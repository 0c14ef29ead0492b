"""The verbs of the command: one file each, with its options and its work as `app`.

A file here is a verb. The first line of its docstring is the verb's line in `anymetal --help`, and
the file is imported only when the verb is called.
"""
