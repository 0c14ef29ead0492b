"""Apple's compiler as the judge of ours: its kernels, from public wheels, run beside our own.

wheels     exact versions of mlx-metal and torch, fetched and kept, never committed
templates  a kernel's name in MLX's metallib -> the template that it was made of
launches   a description of arguments and grid for each family of MLX's kernels
inputs     what a kernel is given: the same bytes for both of them
functions  which math functions a kernel calls
operations how many additions, products and so on a program has
executed   how many of them it carries out
mlx        MLX's kernels: accepted, the same arguments, the same operations
results    MLX's kernels from AIR and from source: the same bits
together   machine code of a batch of programs at once
pytorch    PyTorch's kernels from their metallib against torch's operators
programs   every kernel of all metallibs becomes a Program
page       docs/parity.md
"""
