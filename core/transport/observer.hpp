// Names and values that a transport or a congestion control shows of itself, for series and tests.
#pragma once

#include <string_view>

namespace loomnet {

// Takes name and latest value; names live as long as the program, and one object always gives the same
// names in the same order.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void value(std::string_view name, double value) = 0;
};

}  // namespace loomnet
