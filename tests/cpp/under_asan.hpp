// For tests that say nothing of memory and take minutes under AddressSanitizer: means over many packets, variants
// that run until they stop, counts of allocations. `script/test_steps` runs the plain build of each program
// whose tests differ under it.
#pragma once

#include <gtest/gtest.h>

#if defined(LOOMNET_SANITIZES_ADDRESS)
#define SKIP_UNDER_ASAN() GTEST_SKIP() << "the plain build runs it"
#else
#define SKIP_UNDER_ASAN() static_cast<void>(0)
#endif
