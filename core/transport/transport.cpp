// Names of the contract's enumerations, as reports and logs print them.
#include "transport/transport.hpp"

namespace loomnet {

std::string_view to_string(Status status) {
  switch (status) {
    case Status::ok:
      return "ok";
    case Status::retry_exceeded:
      return "retry_exceeded";
    case Status::remote_access_error:
      return "remote_access_error";
    case Status::remote_invalid_request:
      return "remote_invalid_request";
    case Status::remote_operational:
      return "remote_operational";
    case Status::flushed:
      return "flushed";
  }
  return "unknown_status";
}

std::string_view to_string(EventKind kind) {
  switch (kind) {
    case EventKind::ev_assumed_bad:
      return "ev_assumed_bad";
    case EventKind::ev_good:
      return "ev_good";
    case EventKind::ev_swapped:
      return "ev_swapped";
    case EventKind::port_excluded:
      return "port_excluded";
    case EventKind::port_restored:
      return "port_restored";
    case EventKind::rto:
      return "rto";
    case EventKind::qp_error:
      return "qp_error";
  }
  return "unknown_event";
}

}  // namespace loomnet
