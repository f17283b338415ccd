// The ring of core/transport under this namespace's name.
#pragma once

#include "transport/ring.hpp"

namespace loomnet::roce {

using loomnet::Ring;

}  // namespace loomnet::roce
