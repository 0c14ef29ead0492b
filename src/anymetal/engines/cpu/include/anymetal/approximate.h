// metal::fast: this machine has nothing faster than the accurate functions.
#pragma once

#define AM_FAST_1(NAME) using precise::NAME;
#define AM_FAST_2(NAME) using precise::NAME;
