// Bringing a switch's queues up to date, so that what they have sent since counts as free.
#include "link/shared_buffer.hpp"

#include "link/half_link.hpp"

namespace loomnet {

void SharedBuffer::refresh(Picoseconds now) {
  for (HalfLink* link : links_) link->advance(now);
}

void SharedBuffer::expect_departures(Picoseconds now) {
  for (HalfLink* link : links_) link->expect_departure(now);
}

}  // namespace loomnet
