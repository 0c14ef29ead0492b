// Metal 4 performance primitives: not supported.
#pragma once
#error \
    "Metal 4 performance primitives are not supported by anymetal: include them only where __METAL_VERSION__ >= 400"
