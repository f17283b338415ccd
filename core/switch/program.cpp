// Checks of what a batch has beside the program's own bytes.
#include "switch/program.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace loomnet {

void validate_groups(const TableBatch& batch, std::size_t ports) {
  if (batch.groups.size() > 0x10000) {
    throw std::invalid_argument("TableBatch.groups: at most 65,536, not " + std::to_string(batch.groups.size()));
  }
  for (std::size_t i = 0; i < batch.groups.size(); ++i) {
    const std::string where = "TableBatch.groups[" + std::to_string(i) + "]: ";
    std::vector<SwitchPort> members = batch.groups[i];
    if (members.empty()) {
      throw std::invalid_argument(where + "no members; name one or more of the switch's ports (0 to " +
                                  std::to_string(ports - 1) + ")");
    }
    std::sort(members.begin(), members.end());
    if (members.back() >= ports) {
      throw std::invalid_argument(where + "port " + std::to_string(members.back()) +
                                  " of a switch whose ports are 0 to " + std::to_string(ports - 1));
    }
    const auto twice = std::adjacent_find(members.begin(), members.end());
    if (twice != members.end()) {
      throw std::invalid_argument(where + "port " + std::to_string(*twice) + " stands twice");
    }
  }
}

}  // namespace loomnet
