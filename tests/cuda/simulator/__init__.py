"""An NVIDIA GPU that is not there: the CUDA engine's PTX runs on the CPU, thread by thread.

What hardware may do, it does in an inconvenient way: threads of a warp run one at a time in an
order that changes, copies arrive as late as they may, memory and registers begin with rubbish.
"""
