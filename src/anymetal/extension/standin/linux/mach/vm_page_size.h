// The name alone: torch headers mention it.
#pragma once

extern unsigned long vm_page_size;
