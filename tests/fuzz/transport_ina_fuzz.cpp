// Packets of any bytes at a NIC that has a worker of one aggregation job and the server of another, with
// requests under way: nothing is placed outside its region, no request completes twice, deadlines are
// served, and every packet goes back to the pool.
#include "transport/ina/ina_transport.hpp"
#include "transport_pair.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace loomnet;
  using fuzz::require;
  fuzz::Input in{data, size};
  PacketPool pool;
  fuzz::Host host(pool);
  const std::uint8_t kind = in.byte();
  ina::InaOptions options;
  options.scheme = static_cast<aggregate_scheme>(kind % 3);
  options.values = 64;
  options.window = 4;
  options.pool = 4;
  options.first_sequence = kind & 4 ? 0xfffffff8 : 0;
  options.components = !(kind & 8);
  options.rto_first = microseconds(100);
  options.switchml_timeout = microseconds(100);
  const std::vector<std::uint8_t> source(1 << 12, 0x5a);
  std::uint64_t posted = 0;
  {
    ina::InaTransport transport(host, options, 2, 7);
    QpConfig config;
    config.source = 1, config.destination = 2;
    config.planes = {{.row = {}, .uplinks = {0}}, {.row = {}, .uplinks = {0}}};
    for (const std::uint16_t job : {std::uint16_t{1}, std::uint16_t{2}}) {
      if (job == 2 && options.scheme == AGGREGATE_SWITCHML) break;
      config.local = job + 10u;
      config.group =
          GroupMember{.group = job, .members = 3, .member = job == 1 ? 1 : GroupMember::kServer, .trees = {{1, 2}}};
      transport.connect(config, {});
    }
    Picoseconds now{};
    while (in.size > 0) {
      const std::uint8_t what = in.byte();
      now = now + nanoseconds(in.byte() * 100);
      if (what < 32) {
        WorkRequest request{.id = ++posted, .remote_address = fuzz::kBase, .remote_key = 1};
        request.framing = what & 7;
        request.length = request.framing + (request.framing ? 256u * (what & 7) : 4u * in.byte());
        if (what & 8) request.local = source.data();
        if (what & 16) request.length = request.framing;
        transport.on_post(11, request, now);
      } else if (what < 64) {
        transport.on_port(what & 1, what & 2, now);
      } else if (what < 96) {
        if (transport.next_deadline() <= now) transport.on_deadline(now);
        require(transport.next_deadline() > now);
      } else if (what < 160) {
        (void)transport.pull(what & 1, what & 2 ? kDataClass : kControlClass, now);
      } else {
        aggregate_header header{};
        header.version_scheme = static_cast<std::uint8_t>(AGGREGATE_VERSION << 4 | options.scheme);
        header.type = what & 7;
        header.job = 1 + (what >> 3 & 1);
        header.sequence = static_cast<std::uint32_t>(options.first_sequence) + (in.byte() & 15u);
        header.workers = in.byte() & 7u;
        header.values = 64;
        header.next_index = in.byte() & 7u;
        auto* bytes = reinterpret_cast<std::uint8_t*>(&header);
        const std::uint8_t change = in.byte();
        for (unsigned n = change >> 6; n > 0; --n) {
          const std::size_t where = in.byte() % sizeof header;
          bytes[where] ^= in.byte();
        }
        PacketPtr packet = pool.allocate();
        const std::vector<std::uint8_t> values(change & 16 ? in.byte() : 256, in.byte());
        ina::build(*packet, header, {},
                   {values.data(), static_cast<std::uint32_t>(values.size()), 0, PayloadKind::region});
        if (change & 32) packet->payload.data = nullptr, packet->payload.kind = PayloadKind::none;
        if ((change & 15) == 15) packet->header_length = in.byte() % AGGREGATE_PAYLOAD_AT;
        if ((change & 15) == 14) packet->header[15] |= 0x30;
        transport.on_packet(what & 1, std::move(packet), now);
      }
      require(host.completed <= posted);
      require(transport.outstanding() == (host.completed < posted));
    }
    transport.release();
    require(transport.held() == 0);
  }
  require(pool.outstanding() == 0);
  return 0;
}
