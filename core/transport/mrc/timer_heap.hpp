// The timer heap of core/transport under this namespace's name.
#pragma once

#include "transport/timer_heap.hpp"

namespace loomnet::mrc {

using loomnet::TimerHeap;

}  // namespace loomnet::mrc
