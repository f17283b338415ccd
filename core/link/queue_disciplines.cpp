// The registry; see queue_disciplines.hpp.
#include "link/queue_disciplines.hpp"

#include <array>
#include <stdexcept>

#include "link/codel_queue.hpp"
#include "link/fair_queue.hpp"
#include "link/fifo_queue.hpp"
#include "link/laggard_queue.hpp"

namespace loomnet {
namespace {

using Unit = QueueOption::Unit;
using Values = std::span<const std::int64_t>;

constexpr std::int64_t kMostTime = 3'600'000'000'000'000;  // an hour
constexpr QueueOption kTarget{"target", Unit::picoseconds, 5'000'000'000, 1, kMostTime};
constexpr QueueOption kInterval{"interval", Unit::picoseconds, 100'000'000'000, 1, kMostTime};
constexpr QueueOption kEcn{"ecn", Unit::on_off, 1, 0, 1};
constexpr QueueOption kFlows{"flows", Unit::count, 1024, 1, 1 << 16};
constexpr QueueOption kQuantum{"quantum", Unit::bytes, 1514, 256, 1 << 20};

constexpr QueueOption kParts{"parts", Unit::count, 1, 1, 1 << 16};

constexpr std::array kLaggardOptions{kParts};
constexpr std::array kCodelOptions{kTarget, kInterval, kEcn};
constexpr std::array kFairOptions{kFlows, kQuantum};
constexpr std::array kFairCodelOptions{kFlows, kQuantum, kTarget, kInterval, kEcn};

CodelSettings codel(Values values) { return {{values[0]}, {values[1]}, values[2] != 0}; }

FairSettings fair(Values values) {
  return {static_cast<std::uint32_t>(values[0]), static_cast<std::uint32_t>(values[1]), {}};
}

constexpr QueueDiscipline kDisciplines[] = {
    {kDefaultDiscipline, {}, nullptr},
    {"fifo",
     {},
     [](SendingPort& port, const LinkConfig& config, Values) -> std::unique_ptr<PortQueue> {
       return std::make_unique<FifoQueue>(port, config);
     }},
    {"laggard_first", kLaggardOptions,
     [](SendingPort& port, const LinkConfig& config, Values values) -> std::unique_ptr<PortQueue> {
       return std::make_unique<LaggardQueue>(port, config, static_cast<std::uint32_t>(values[0]));
     }},
    {"codel", kCodelOptions,
     [](SendingPort& port, const LinkConfig& config, Values values) -> std::unique_ptr<PortQueue> {
       return std::make_unique<CodelQueue>(port, config, codel(values));
     }},
    {"fq", kFairOptions,
     [](SendingPort& port, const LinkConfig& config, Values values) -> std::unique_ptr<PortQueue> {
       return std::make_unique<FairQueue>(port, config, fair(values));
     }},
    {"fq_codel", kFairCodelOptions,
     [](SendingPort& port, const LinkConfig& config, Values values) -> std::unique_ptr<PortQueue> {
       FairSettings settings = fair(values);
       settings.codel = codel(values.subspan(2));
       return std::make_unique<FairQueue>(port, config, settings);
     }},
};

template <class Rows>
std::string names(const Rows& rows) {
  std::string found;
  for (const auto& row : rows) found += (found.empty() ? "" : ", ") + std::string(row.name);
  return found.empty() ? "none" : found;
}

}  // namespace

std::string_view to_string(QueueOption::Unit unit) {
  switch (unit) {
    case Unit::picoseconds:
      return "time";
    case Unit::bytes:
      return "size";
    case Unit::count:
      return "count";
    case Unit::on_off:
      return "switch";
  }
  return "unknown";
}

std::span<const QueueDiscipline> queue_disciplines() { return kDisciplines; }

std::shared_ptr<const QueueChoice> choose_queue(std::string_view name,
                                                std::span<const std::pair<std::string, std::int64_t>> options) {
  for (std::size_t i = 0; i < std::size(kDisciplines); ++i) {
    const QueueDiscipline& discipline = kDisciplines[i];
    if (discipline.name != name) continue;
    QueueChoice choice{i, {}};
    for (const QueueOption& option : discipline.options) choice.values.push_back(option.preset);
    const std::string where = "queue " + std::string(name) + ": ";
    for (const auto& [given, value] : options) {
      std::size_t at = 0;
      while (at < discipline.options.size() && discipline.options[at].name != given) ++at;
      if (at == discipline.options.size()) {
        throw std::invalid_argument(where + "no option " + given + "; its options: " + names(discipline.options));
      }
      const QueueOption& option = discipline.options[at];
      if (value < option.least || value > option.most) {
        throw std::invalid_argument(where + given + " must be from " + std::to_string(option.least) + " to " +
                                    std::to_string(option.most));
      }
      choice.values[at] = value;
    }
    return discipline.make ? std::make_shared<const QueueChoice>(std::move(choice)) : nullptr;
  }
  throw std::invalid_argument("queue: no discipline " + std::string(name) + "; there are " +
                              names(std::span(kDisciplines)));
}

std::unique_ptr<PortQueue> make_queue(SendingPort& port, const LinkConfig& config) {
  return kDisciplines[config.queue->discipline].make(port, config, config.queue->values);
}

}  // namespace loomnet
