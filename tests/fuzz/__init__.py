"""A differential fuzzer: random kernels run on every engine and on a model of the machine.

generate.py  seed -> Kernel         model.py  Kernel -> expected buffers
printer.py   Kernel -> MSL          driver.py Kernel + engine -> buffers, and where they differ
shrink.py    a failing Kernel -> a small one that still fails
"""
