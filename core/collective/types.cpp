// Names, sizes and admissible combinations of the collective vocabulary.
#include "collective/types.hpp"

#include <array>

#include "collective/verbs.hpp"

namespace loomnet {
namespace {

template <typename Enum, std::size_t n>
std::string_view name_of(Enum value, const std::array<std::string_view, n>& names) {
  const auto index = static_cast<std::size_t>(value);
  return index < n ? names[index] : std::string_view("invalid");
}

}  // namespace

std::size_t element_size(DataType type) {
  constexpr std::array<std::uint8_t, kDataTypes> sizes{1, 1, 1, 1, 2, 4, 8, 2, 2, 4, 8};
  const auto index = static_cast<std::size_t>(type);
  return index < sizes.size() ? sizes[index] : 0;
}

std::string_view to_string(DataType type) {
  return name_of(type, std::array<std::string_view, kDataTypes>{"opaque", "bool", "uint8", "int8", "int16", "int32",
                                                                "int64", "float16", "bfloat16", "float32", "float64"});
}

std::string_view to_string(ReduceOp op) {
  return name_of(op, std::array<std::string_view, kReduceOps>{"sum", "avg", "min", "max", "product", "band", "bor",
                                                              "bxor", "premul_sum"});
}

std::string_view to_string(Collective collective) {
  return name_of(collective, std::array<std::string_view, kCollectives>{"all_reduce", "reduce_scatter", "all_gather",
                                                                        "broadcast", "reduce", "all_to_all", "barrier",
                                                                        "gather", "scatter", "send", "recv"});
}

std::string_view to_string(OperationStatus status) {
  return name_of(status, std::array<std::string_view, kOperationStatuses>{
                             "ok", "mismatch", "peer_failed", "peer_aborted", "protocol", "aborted", "closed"});
}

std::string_view to_string(WriteStatus status) {
  return name_of(status, std::array<std::string_view, 6>{"ok", "retry_exceeded", "remote_access_error",
                                                         "remote_invalid_request", "remote_operational", "flushed"});
}

bool reducible(ReduceOp op, DataType type) {
  const bool real =
      type == DataType::float16 || type == DataType::bfloat16 || type == DataType::float32 || type == DataType::float64;
  if (type == DataType::opaque || element_size(type) == 0) return false;
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::min:
    case ReduceOp::max:
    case ReduceOp::product:
      return true;
    case ReduceOp::avg:
      return type != DataType::boolean;
    case ReduceOp::band:
    case ReduceOp::bor:
    case ReduceOp::bxor:
      return !real;
    case ReduceOp::premul_sum:
      return real;
  }
  return false;
}

std::string describe(const Operation& operation) {
  const std::string name(to_string(operation.collective));
  if (operation.collective == Collective::barrier) return name + "()";
  std::string text = name + "(" + std::string(to_string(operation.type));
  if (operation.input_counts.empty() && operation.output_counts.empty()) {
    text += ", " + std::to_string(operation.count) + " elements";
  } else {
    text += ", uneven";
  }
  switch (operation.collective) {
    case Collective::all_reduce:
    case Collective::reduce_scatter:
      text += ", " + std::string(to_string(operation.reduce));
      break;
    case Collective::reduce:
      text += ", " + std::string(to_string(operation.reduce)) + ", root " + std::to_string(operation.root);
      break;
    case Collective::broadcast:
    case Collective::gather:
    case Collective::scatter:
      text += ", root " + std::to_string(operation.root);
      break;
    case Collective::send:
    case Collective::recv:
      text += operation.peer == kAnySource ? ", any source" : ", rank " + std::to_string(operation.peer);
      text += ", tag " + std::to_string(operation.tag);
      break;
    default:
      break;
  }
  return text + ")";
}

}  // namespace loomnet
