"""Apple's compiled kernels (metallibs, AIR bitcode) as a front end beside `msl`: Programs come out.

container   bytes <-> functions with their bitcode
archive     wheels and dynamic libraries that hold metallibs
metadata    what Apple's compiler noted of a kernel: arguments, function constants, limits
rewrite     AIR -> IR without address spaces
constants   function constants, and what follows from them
library     air.* functions made of our own headers (functions/); `needed`: those of a kernel
thunk       the function that an engine calls
program     all of it linked, and with `places` the lines that findings quote
frontend    the room's door
"""
