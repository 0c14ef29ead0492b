"""Apple's compiled kernels (metallibs, AIR bitcode) as a front end beside `msl`: Programs come out.

container   bytes -> functions with their bitcode          archive    files that hold metallibs
metadata    what Apple's compiler noted of a kernel        library    air.* functions, by our headers
rewrite     AIR -> IR without address spaces               thunk      what an engine calls
program     all of it, linked                              frontend   the room's door
"""
