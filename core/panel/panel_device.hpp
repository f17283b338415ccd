// The state of an optical circuit switch: cross-connects of simplex ports, overrides and faults of ports,
// light, and the events of all these. The device touches neither packets nor clocks: callers give the time. Semantics are those of SONiC's OCS design and SAI's experimental OCS objects.
#pragma once

#include <cstdint>
#include <queue>
#include <span>
#include <utility>
#include <vector>

#include "clock/random.hpp"
#include "clock/time.hpp"
#include "ebpf/panel_abi.h"
#include "panel/profile.hpp"

namespace loomnet::panel {

using Port = std::uint16_t;

// Port n of a panel is the simplex ports nA, where a host's light comes in, and nB, where light leaves to
// that host. Numbers begin at 0 here and at 1 in every control interface.
struct Simplex {
  Port port = 0;
  bool out = false;  // the B side
  friend bool operator==(const Simplex&, const Simplex&) = default;
};

struct CrossConnect {
  Port a = 0, b = 0;  // ingress, egress; a == b is a loopback
  friend auto operator<=>(const CrossConnect&, const CrossConnect&) = default;
};

enum class Status : std::uint8_t {
  blocked = PANEL_BLOCKED,
  tuning = PANEL_TUNING,
  tuned = PANEL_TUNED,
  failed = PANEL_FAILED,
};
enum class Override : std::uint8_t { powered_off, normal, force_blocked };  // SAI's values

enum class Mode : std::uint8_t {
  update,     // takes the named ports from whatever uses them
  safe,       // refuses the request if one of them is in another cross-connect
  overwrite,  // removes every other cross-connect
};

// Which light a host's port must have for carrier.
enum class Carrier : std::uint8_t {
  both,  // in both directions, as Ethernet's fault signalling has it
  rx,    // in its receive direction
  none,  // none: carrier never goes
};

struct DeviceOptions {
  Profile profile = panel::profile("sim25");
  Carrier carrier = Carrier::both;
  std::uint64_t seed = 1;
  bool dark_by_port = false;  // each port its own dark time, not one for all of a request
};

struct DeviceEvent {
  enum class Kind : std::uint8_t { status, carrier } kind = Kind::status;
  Picoseconds at;
  Simplex port;  // of carrier: the port whose host it is
  std::uint8_t value = 0;  // Status, or whether there is carrier
  std::uint64_t generation = 0;
  friend bool operator==(const DeviceEvent&, const DeviceEvent&) = default;
};

class PanelDevice {
 public:
  static constexpr std::size_t kMaxPorts = 1024;  // as SONiC's design has it

  // Throws std::invalid_argument.
  explicit PanelDevice(std::size_t ports, const DeviceOptions& options = {});

  // --- requests: each is applied whole or, where it throws std::invalid_argument, not at all -----------
  // Removes and adds cross-connects as one generation and returns its number; a request that changes
  // nothing makes none. `all_dark`: every cross-connect of these ports goes dark, changed or not.
  std::uint64_t change(std::span<const CrossConnect> remove, std::span<const CrossConnect> add, Mode mode,
                       Picoseconds now, std::span<const Port> all_dark = {});
  std::uint64_t connect(std::span<const CrossConnect> add, Mode mode, Picoseconds now) {
    return change({}, add, mode, now);
  }
  // Makes the panel have these and whatever does not stand in their way.
  std::uint64_t reconcile(std::span<const CrossConnect> wanted, Picoseconds now) {
    return change({}, wanted, Mode::update, now);
  }
  void set_override(Simplex port, Override value, Picoseconds now);
  void set_shutter(Simplex port, bool closed, Picoseconds now);
  void set_failed(Simplex port, bool failed, Picoseconds now);
  void set_attenuation(Port egress, double db, Picoseconds now);  // 0 and more
  void set_transmit_power(Port ingress, double dbm, Picoseconds now);

  // --- time ---------------------------------------------------------------------------------------------
  // When a status or a carrier changes next by itself; kNever for not.
  Picoseconds next_time() const { return due_.empty() ? kNever : due_.top().first; }
  // Takes note of what has changed until now.
  void advance(Picoseconds now);
  std::vector<DeviceEvent> take_events() { return std::exchange(events_, {}); }

  // --- looking ------------------------------------------------------------------------------------------
  std::size_t ports() const { return in_.size(); }
  std::uint64_t generation() const { return generation_; }
  std::vector<CrossConnect> cross_connects() const;  // in the order of their ingress ports
  std::int32_t target(Simplex port) const { return end(port).peer; }  // -1: none
  Status status(Simplex port, Picoseconds now) const;
  Override override_of(Simplex port) const { return end(port).override_state; }
  bool carrier(Port port, Picoseconds now) const;
  // Light passes a cross-connect that begins here, whether it is tuned or not.
  bool passes(Port ingress) const;
  Picoseconds dark_until(Port ingress) const { return in_.at(ingress).dark_until; }
  // Of the light that leaves by this port, -infinity where there is none.
  double power_dbm(Port egress, Picoseconds now) const;
  bool shutter_closed(Simplex port) const { return end(port).shutter_closed; }
  double transmit_power(Port ingress) const { return in_.at(ingress).level_db; }
  double attenuation(Port egress) const { return out_.at(egress).level_db; }
  int insertion_loss(Port a, Port b) const;  // in hundredths of a dB
  panel_entry entry(Port ingress, Picoseconds now) const;
  const DeviceOptions& options() const { return options_; }

 private:
  struct End {
    std::int32_t peer = -1;
    Override override_state = Override::normal;
    bool shutter_closed = false, failed = false;
    double level_db = 0;         // in: power of the transmitter; out: attenuation
    Picoseconds dark_until;  // in: of the cross-connect that begins here
    Picoseconds lit_from;    // in: light leaves by the cross-connect since, or will
    bool passed = false;         // in: passes() when it was last looked at
    std::uint64_t generation = 0;
    Status told = Status::blocked;
  };
  struct Host {
    Picoseconds nic_up;  // drawn anew whenever its light changes
    bool told = false;
  };
  End& end(Simplex port) { return (port.out ? out_ : in_).at(port.port); }
  const End& end(Simplex port) const { return (port.out ? out_ : in_).at(port.port); }
  void check(std::span<const CrossConnect> named) const;
  void look(Port ingress, Picoseconds now);  // its light, after a change
  void look_at(Simplex port, Picoseconds now);
  void tell(Simplex port, Picoseconds now);
  Picoseconds carrier_from(Port port) const;  // kNever: not as things are
  double level(Port a, Port b) const;

  DeviceOptions options_;
  std::vector<End> in_, out_;
  std::vector<Host> hosts_;
  std::uint64_t generation_ = 0;
  RandomStream dark_random_, nic_random_;
  using Due = std::pair<Picoseconds, Port>;
  std::priority_queue<Due, std::vector<Due>, std::greater<>> due_;
  std::vector<DeviceEvent> events_;
};

}  // namespace loomnet::panel
