// The types alone: torch headers name them.
#pragma once

#include <stdint.h>

typedef uint64_t os_signpost_id_t;
typedef uint8_t os_signpost_type_t;
