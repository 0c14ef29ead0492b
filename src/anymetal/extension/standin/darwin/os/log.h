// The type alone: torch headers name it.
#pragma once

typedef struct os_log_s* os_log_t;
