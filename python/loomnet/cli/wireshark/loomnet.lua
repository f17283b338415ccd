-- Wireshark reads Loomnet's captures with this file: MRC (OCP MRC 1.0), the step header, the header of
-- in-network aggregation, and RoCEv2 packets that were captured without their payload.
--
--   wireshark -X lua_script:loomnet.lua h0.pcapng
--
-- or copy it into the folder "Personal Lua Plugins" (Help > About Wireshark > Folders). Wireshark 4.0 and later.

local MRC_PORT, STEP_PORT, AGGREGATE_PORT, ROCE_PORT = 4971, 18771, 0xbed0, 4791
local STEP_BYTES, BTH_BYTES, ICRC_BYTES = 16, 12, 4
local FIRST_MRC_OPCODE = 0xc0 -- RC's opcodes are below; CNP is 0x81

local udp_port = DissectorTable.get("udp.port")
local infiniband = udp_port:get_dissector(ROCE_PORT)
local flow_label = Field.new("ipv6.flow")

-- Adds `field` for `length` bytes at `at` if they were captured; returns where the next field begins.
local function put(tree, field, tvb, at, length, little)
  if at + length <= tvb:len() then
    if little then tree:add_le(field, tvb(at, length)) else tree:add(field, tvb(at, length)) end
  end
  return at + length
end

-- The bytes at `at` as a tree of their own, or nil where they were not all captured.
local function header(tree, proto, tvb, at, length, name)
  if at + length > tvb:len() then return nil end
  return tree:add(proto, tvb(at, length), name)
end

-- --- MRC -------------------------------------------------------------------------------------------

local mrc = Proto("mrc", "Multipath Reliable Connection")

local MRC_OPCODES = {
  [0xc6] = "Write First", [0xc7] = "Write Middle", [0xc8] = "Write Last",
  [0xc9] = "Write Last Immediate", [0xca] = "Write Only", [0xcb] = "Write Only Immediate",
  [0xd1] = "Transport Ack", [0xd8] = "Endpoint Request", [0xd9] = "Endpoint Response",
  [0xdc] = "SACK", [0xdd] = "NACK", [0xde] = "Reliability Probe",
}
local NACK_REASONS = {
  [0x01] = "trimmed", [0x02] = "trimmed at the last hop", [0x06] = "no bitmap",
  [0x07] = "no packet buffer", [0x0a] = "no resource", [0x0b] = "PSN out of window",
  [0x19] = "unexpected event",
}
local MARKS = { [0] = "none", [1] = "skip once", [2] = "always skip", [3] = "reserved" }
local ENDPOINT_OPS = { [0] = "port status update", [1] = "EV probe" }
local UNITS = { [0] = "128 ns", [1] = "1 us" }

local m = {
  opcode = ProtoField.uint8("mrc.opcode", "Opcode", base.HEX, MRC_OPCODES),
  solicited = ProtoField.bool("mrc.solicited", "Solicited event", 8, nil, 0x80),
  pad = ProtoField.uint8("mrc.pad", "Pad count", base.DEC, nil, 0x30),
  pkey = ProtoField.uint16("mrc.pkey", "Partition key", base.HEX),
  fecn = ProtoField.bool("mrc.fecn", "FECN", 8, nil, 0x80),
  becn = ProtoField.bool("mrc.becn", "BECN", 8, nil, 0x40),
  qp = ProtoField.uint24("mrc.qp", "Destination queue pair", base.DEC),
  ack_request = ProtoField.bool("mrc.ack_request", "Acknowledge request", 8, nil, 0x80),
  rtx = ProtoField.bool("mrc.rtx", "Retransmission", 8, nil, 0x20),
  ts = ProtoField.bool("mrc.ts", "Timestamp present", 8, nil, 0x10),
  psn = ProtoField.uint24("mrc.psn", "Packet sequence number", base.DEC),
  ev = ProtoField.uint32("mrc.ev", "Entropy value", base.HEX),
  plane = ProtoField.uint8("mrc.ev.plane", "Plane", base.DEC),
  uplink = ProtoField.uint16("mrc.ev.uplink", "Uplink", base.DEC),
  rqmsn = ProtoField.uint16("mrc.rqmsn", "Receive queue message number", base.DEC),
  msn = ProtoField.uint16("mrc.msn", "Message number", base.DEC),
  tx_ts = ProtoField.uint16("mrc.tx_ts", "Send time", base.DEC),
  tx_unit = ProtoField.uint8("mrc.tx_unit", "Unit of the send time", base.DEC, UNITS, 0x80),
  address = ProtoField.uint64("mrc.address", "Remote address", base.HEX),
  key = ProtoField.uint32("mrc.key", "Remote key", base.HEX),
  dma_length = ProtoField.uint32("mrc.dma_length", "Message length", base.DEC),
  immediate = ProtoField.uint32("mrc.immediate", "Immediate data", base.HEX),
  next_header = ProtoField.uint16("mrc.next_header", "Next header", base.DEC, nil, 0x0f80),
  mark = ProtoField.uint16("mrc.mark", "Mark", base.DEC, MARKS, 0x0060),
  probe_reply = ProtoField.bool("mrc.probe_reply", "Answers a probe", 16, nil, 0x0002),
  ack_offset = ProtoField.int16("mrc.ack_offset", "Acknowledged PSN, from the cumulative one", base.DEC),
  echo = ProtoField.uint32("mrc.echo", "Entropy value of the packet answered", base.HEX),
  source_pdc = ProtoField.uint16("mrc.source_pdc", "Source context", base.DEC),
  destination_pdc = ProtoField.uint16("mrc.destination_pdc", "Destination context", base.DEC),
  cack = ProtoField.uint24("mrc.cack", "Cumulative acknowledgement", base.DEC),
  cc_type = ProtoField.uint8("mrc.cc_type", "Congestion control", base.DEC, nil, 0xf0),
  mpr = ProtoField.uint8("mrc.mpr", "Maximum PSN range", base.DEC),
  sack_offset = ProtoField.int16("mrc.sack_offset", "First PSN of the bitmap, from the cumulative one", base.DEC),
  bitmap = ProtoField.uint64("mrc.bitmap", "Bitmap", base.HEX),
  ooo = ProtoField.uint16("mrc.ooo", "Packets beyond a gap", base.DEC, nil, 0x7fff),
  restore = ProtoField.bool("mrc.restore", "Restore the window", 8, nil, 0x80),
  penalty = ProtoField.uint8("mrc.penalty", "Window penalty", base.DEC, nil, 0x7f),
  rcvd = ProtoField.uint24("mrc.rcvd", "Received, in 256 bytes", base.DEC),
  reason = ProtoField.uint8("mrc.reason", "Reason", base.HEX, NACK_REASONS),
  nack_psn = ProtoField.uint24("mrc.nack_psn", "Refused PSN", base.DEC),
  syndrome = ProtoField.uint8("mrc.syndrome", "Syndrome", base.HEX),
  ack_msn = ProtoField.uint24("mrc.ack_msn", "Message number", base.DEC),
  probe_id = ProtoField.uint16("mrc.probe_id", "Probe", base.DEC),
  endpoint_op = ProtoField.uint16("mrc.endpoint_op", "Operation", base.DEC, ENDPOINT_OPS, 0x0003),
  answered_op = ProtoField.uint16("mrc.answered_op", "Operation", base.DEC, ENDPOINT_OPS, 0x0030),
  ports = ProtoField.uint32("mrc.ports", "Reachable planes", base.HEX),
  payload = ProtoField.bytes("mrc.payload", "Payload"),
  payload_length = ProtoField.uint32("mrc.payload_length", "Payload length", base.DEC),
  icrc = ProtoField.uint32("mrc.icrc", "Invariant CRC", base.HEX),
}
mrc.fields = m

-- The sender's entropy value: its high half is in the flow label, its low half is the UDP source port.
local function add_entropy(tree, pinfo)
  local labels = { flow_label() }
  if #labels == 0 then return end
  local ev = labels[#labels].value % 0x10000 * 0x10000 + pinfo.src_port
  tree:add(m.ev, ev):set_generated()
  tree:add(m.plane, ev % 8):set_generated()
  tree:add(m.uplink, math.floor(ev / 8) % 2048):set_generated()
end

local function add_time(tree, tvb, at)
  put(tree, m.tx_ts, tvb, at, 2)
  put(tree, m.tx_unit, tvb, at + 2, 1)
end

-- What SACK and NACK hold alike, from their entropy value on; `psn`: the field at its place.
local function add_feedback(tree, tvb, at, psn)
  put(tree, m.echo, tvb, at, 4)
  put(tree, m.source_pdc, tvb, at + 4, 2)
  put(tree, m.destination_pdc, tvb, at + 6, 2)
  put(tree, psn, tvb, at + 9, 3)
  put(tree, m.cc_type, tvb, at + 12, 1)
end

-- Each adds the headers behind BTH at `at`; they return where they end, and what the packet list says.
local behind = {}

local function add_write(tvb, tree, at, opcode)
  local meth = header(tree, mrc, tvb, at, 4, "METH: message")
  if meth then put(meth, m.msn, tvb, put(meth, m.rqmsn, tvb, at, 2), 2) end
  local tseth = header(tree, mrc, tvb, at + 4, 4, "TSETH: time")
  if tseth then add_time(tseth, tvb, at + 4) end
  local reth = header(tree, mrc, tvb, at + 8, 16, "RETH: remote memory")
  if reth then
    put(reth, m.address, tvb, at + 8, 8)
    put(reth, m.key, tvb, at + 16, 4)
    put(reth, m.dma_length, tvb, at + 20, 4)
  end
  at = at + 24
  if opcode == 0xc9 or opcode == 0xcb then at = put(tree, m.immediate, tvb, at, 4) end
  return at, ""
end
for opcode = 0xc6, 0xcb do behind[opcode] = add_write end

behind[0xd1] = function(tvb, tree, at)
  local aeth = header(tree, mrc, tvb, at, 4, "AETH: acknowledgement")
  if aeth then put(aeth, m.ack_msn, tvb, put(aeth, m.syndrome, tvb, at, 1), 3) end
  return at + 4, ""
end

behind[0xdc] = function(tvb, tree, at)
  local seth = header(tree, mrc, tvb, at, 28, "SETH: selective acknowledgement")
  if not seth then return at + 36, "" end
  seth:add(m.next_header, tvb(at, 2))
  seth:add(m.mark, tvb(at, 2))
  seth:add(m.probe_reply, tvb(at, 2))
  seth:add(m.ack_offset, tvb(at + 2, 2))
  add_feedback(seth, tvb, at + 4, m.cack)
  seth:add(m.mpr, tvb(at + 17, 1))
  seth:add(m.sack_offset, tvb(at + 18, 2))
  seth:add(m.bitmap, tvb(at + 20, 8))
  local state = header(tree, mrc, tvb, at + 28, 8, "Congestion control state")
  if state then
    state:add(m.tx_ts, tvb(at + 28, 2))
    state:add(m.ooo, tvb(at + 30, 2))
    state:add(m.restore, tvb(at + 32, 1))
    state:add(m.penalty, tvb(at + 32, 1))
    state:add(m.rcvd, tvb(at + 33, 3))
  end
  return at + 36, string.format(" up to %d", tvb(at + 13, 3):uint())
end

behind[0xdd] = function(tvb, tree, at)
  local neth = header(tree, mrc, tvb, at, 20, "NETH: negative acknowledgement")
  if not neth then return at + 20, "" end
  neth:add(m.next_header, tvb(at, 2))
  neth:add(m.reason, tvb(at + 2, 1))
  add_feedback(neth, tvb, at + 4, m.nack_psn)
  neth:add(m.tx_ts, tvb(at + 18, 2))
  local reason = tvb(at + 2, 1):uint()
  return at + 20, string.format(" of %d: %s", tvb(at + 13, 3):uint(),
                                NACK_REASONS[reason] or string.format("reason 0x%02x", reason))
end

behind[0xde] = function(tvb, tree, at)
  local peth = header(tree, mrc, tvb, at, 16, "PETH: reliability probe")
  if not peth then return at + 16, "" end
  peth:add(m.next_header, tvb(at, 2))
  peth:add(m.probe_id, tvb(at + 4, 2))
  peth:add(m.source_pdc, tvb(at + 8, 2))
  peth:add(m.destination_pdc, tvb(at + 10, 2))
  add_time(peth, tvb, at + 12)
  return at + 16, string.format(" %d", tvb(at + 4, 2):uint())
end

behind[0xd8] = function(tvb, tree, at)
  local erth = header(tree, mrc, tvb, at, 16, "ERTH: endpoint request")
  if not erth then return at + 16, "" end
  erth:add(m.next_header, tvb(at, 2))
  erth:add(m.endpoint_op, tvb(at, 2))
  erth:add(m.ports, tvb(at + 4, 4))
  add_time(erth, tvb, at + 12)
  return at + 16, ": " .. (ENDPOINT_OPS[tvb(at, 2):uint() % 4] or "reserved")
end

behind[0xd9] = function(tvb, tree, at)
  local eeth = header(tree, mrc, tvb, at, 36, "EETH: endpoint response")
  if not eeth then return at + 36, "" end
  eeth:add(m.next_header, tvb(at, 2))
  eeth:add(m.answered_op, tvb(at, 2))
  eeth:add(m.tx_ts, tvb(at + 28, 2))
  return at + 36, ": " .. (ENDPOINT_OPS[math.floor(tvb(at, 2):uint() / 16) % 4] or "reserved")
end

-- `length`: of UDP's payload, of which `tvb` holds what was captured.
local function dissect_mrc(tvb, pinfo, root, length)
  if tvb:len() < BTH_BYTES then return 0 end
  local opcode = tvb(0, 1):uint()
  if not MRC_OPCODES[opcode] then return 0 end
  pinfo.cols.protocol = "MRC"
  local tree = root:add(mrc, tvb())
  local bth = tree:add(mrc, tvb(0, BTH_BYTES), "BTH: base transport header")
  bth:add(m.opcode, tvb(0, 1))
  bth:add(m.solicited, tvb(1, 1))
  bth:add(m.pad, tvb(1, 1))
  bth:add(m.pkey, tvb(2, 2))
  bth:add(m.fecn, tvb(4, 1))
  bth:add(m.becn, tvb(4, 1))
  bth:add(m.qp, tvb(5, 3))
  bth:add(m.ack_request, tvb(8, 1))
  bth:add(m.rtx, tvb(8, 1))
  bth:add(m.ts, tvb(8, 1))
  bth:add(m.psn, tvb(9, 3))
  add_entropy(tree, pinfo)
  local at, said = behind[opcode](tvb, tree, BTH_BYTES, opcode)
  -- A packet that a switch has trimmed is shorter than its headers may be.
  local payload = math.max(length - ICRC_BYTES - at, 0)
  if behind[opcode] == add_write then
    tree:add(m.payload_length, payload):set_generated()
    local here = math.min(payload, tvb:len() - at)
    if here > 0 then tree:add(m.payload, tvb(at, here)) end
    said = string.format(" Len=%d", payload)
  end
  put(tree, m.icrc, tvb, at + payload, ICRC_BYTES)
  local again = math.floor(tvb(8, 1):uint() / 32) % 2 == 1 and " [retransmission]" or ""
  pinfo.cols.info = string.format("%s QP=%d PSN=%d%s%s", MRC_OPCODES[opcode], tvb(5, 3):uint(),
                                  tvb(9, 3):uint(), said, again)
  return tvb:len()
end

function mrc.dissector(tvb, pinfo, root) return dissect_mrc(tvb, pinfo, root, tvb:reported_len()) end

-- --- RoCEv2 ----------------------------------------------------------------------------------------

local RETH, IMMEDIATE, AETH = 16, 4, 4
local roce_behind = {
  [0x06] = RETH, [0x07] = 0, [0x08] = 0, [0x09] = IMMEDIATE, [0x0a] = RETH, [0x0b] = RETH + IMMEDIATE,
  [0x11] = AETH, [0x81] = 16,
}

-- Wireshark's dissector calls a packet malformed whose payload was not captured. It is given the headers
-- and an ICRC of zeros, as those of a packet without payload.
local function dissect_roce(tvb, pinfo, root, length)
  local behind_bth = tvb:len() >= BTH_BYTES and roce_behind[tvb(0, 1):uint()]
  local headers = BTH_BYTES + (behind_bth or 0)
  if tvb:len() >= length or not behind_bth or tvb:len() < headers then
    return infiniband:call(tvb, pinfo, root)
  end
  local bytes = tvb(0, headers):bytes()
  bytes:append(ByteArray.new("00000000"))
  infiniband:call(bytes:tvb("RoCEv2 headers"), pinfo, root)
  pinfo.cols.info:append(string.format(" Len=%d", length - ICRC_BYTES - headers))
  return tvb:len()
end

local roce = Proto("loomnet_roce", "RoCEv2 without payload")
function roce.dissector(tvb, pinfo, root) return dissect_roce(tvb, pinfo, root, tvb:reported_len()) end

-- --- the step header (Loomnet's own: docs/attributes.md) -------------------------------------------

local step = Proto("loomnet_step", "Loomnet step header")

local s = {
  magic = ProtoField.uint16("loomnet_step.magic", "Magic", base.HEX),
  version = ProtoField.uint8("loomnet_step.version", "Version", base.DEC, nil, 0xf0),
  again = ProtoField.bool("loomnet_step.again", "Sent again (R)", 8, nil, 0x04),
  last = ProtoField.bool("loomnet_step.last", "Last packet of its step (L)", 8, nil, 0x02),
  other = ProtoField.bool("loomnet_step.other", "In no ring step (C)", 8, nil, 0x01),
  gen = ProtoField.uint8("loomnet_step.gen", "Incarnation of the communicator", base.DEC),
  job = ProtoField.uint16("loomnet_step.job", "Job", base.DEC),
  ring = ProtoField.uint16("loomnet_step.ring", "Ring", base.DEC),
  rank = ProtoField.uint16("loomnet_step.rank", "Rank", base.DEC),
  ranks = ProtoField.uint16("loomnet_step.ranks", "Ranks", base.DEC),
  step = ProtoField.uint16("loomnet_step.step", "Ring step", base.DEC),
  share = ProtoField.double("loomnet_step.share", "Share of the step before this packet"),
}
step.fields = s

function step.dissector(tvb, pinfo, root)
  if tvb:len() < STEP_BYTES or tvb(0, 2):uint() ~= 0x5359 then return 0 end
  local tree = root:add(step, tvb(0, STEP_BYTES))
  tree:add(s.magic, tvb(0, 2))
  for _, field in ipairs({ s.version, s.again, s.last, s.other }) do tree:add(field, tvb(2, 1)) end
  tree:add(s.gen, tvb(3, 1))
  for i, field in ipairs({ s.job, s.ring, s.rank, s.ranks, s.step }) do
    tree:add(field, tvb(2 + 2 * i, 2))
  end
  tree:add(s.share, tvb(14, 2), tvb(14, 2):uint() / 65536)
  if tvb:len() < STEP_BYTES + BTH_BYTES then return tvb:len() end
  -- A part of a buffer forgets how long the packet was, so its length goes beside it.
  local rest, length = tvb(STEP_BYTES):tvb(), tvb:reported_len() - STEP_BYTES
  if rest(0, 1):uint() >= FIRST_MRC_OPCODE then
    dissect_mrc(rest, pinfo, root, length)
  else
    dissect_roce(rest, pinfo, root, length)
  end
  if tvb(2, 1):uint() % 2 == 0 then
    pinfo.cols.info:append(string.format(" Step=%d", tvb(12, 2):uint()))
  end
  return tvb:len()
end

-- --- in-network aggregation (docs/ina.md) ----------------------------------------------------------

local ina = Proto("loomnet_ina", "In-network aggregation")

local SCHEMES = { [0] = "SwitchML", [1] = "ATP", [2] = "ESA" }
local TYPES = { [0] = "DATA", "RESEND", "EVICT", "AGG", "REMIND", "REPLY", "RESULT", "NAK" }
local FLAGS = { "bypass", "collision", "ecn", "nonfinite", "overflow", "boot", "unicast", "floats" }
local SOURCES = { [0xfe] = "parameter server", [0xff] = "switch" }

local a = {
  version = ProtoField.uint8("loomnet_ina.version", "Version", base.DEC, nil, 0xf0),
  scheme = ProtoField.uint8("loomnet_ina.scheme", "Scheme", base.DEC, SCHEMES, 0x0f),
  type = ProtoField.uint8("loomnet_ina.type", "Type", base.DEC, TYPES),
  priority = ProtoField.uint8("loomnet_ina.priority", "Priority", base.DEC),
  job = ProtoField.uint16("loomnet_ina.job", "Job", base.DEC),
  index = ProtoField.uint16("loomnet_ina.index", "Slot", base.DEC),
  sequence = ProtoField.uint32("loomnet_ina.sequence", "Fragment", base.DEC),
  values = ProtoField.uint16("loomnet_ina.values", "Values", base.DEC),
  source = ProtoField.uint8("loomnet_ina.source", "Source", base.DEC, SOURCES),
  exponent = ProtoField.int8("loomnet_ina.exponent", "Exponent", base.DEC),
  workers = ProtoField.uint64("loomnet_ina.workers", "Workers", base.HEX),
  next_index = ProtoField.uint16("loomnet_ina.next_index", "Slot of the next fragment", base.DEC),
  hop = ProtoField.uint16("loomnet_ina.hop", "Switch", base.DEC),
  time = ProtoField.uint32("loomnet_ina.time", "Sender's clock, in microseconds", base.DEC),
  payload = ProtoField.bytes("loomnet_ina.payload", "Values"),
}
local flag_fields = {}
for bit, name in ipairs(FLAGS) do
  a[name] = ProtoField.bool("loomnet_ina." .. name, "Flag " .. name, 8, nil, 2 ^ (bit - 1))
  flag_fields[bit] = a[name]
end
ina.fields = a

function ina.dissector(tvb, pinfo, root)
  if tvb:len() < 32 then return 0 end
  pinfo.cols.protocol = "INA"
  local tree = root:add(ina, tvb())
  tree:add(a.version, tvb(0, 1))
  tree:add(a.scheme, tvb(0, 1))
  tree:add(a.type, tvb(1, 1))
  for _, field in ipairs(flag_fields) do tree:add(field, tvb(2, 1)) end
  local at = 3
  for _, each in ipairs({
    { a.priority, 1 }, { a.job, 2 }, { a.index, 2 }, { a.sequence, 4 }, { a.values, 2 }, { a.source, 1 },
    { a.exponent, 1 }, { a.workers, 8 }, { a.next_index, 2 }, { a.hop, 2 }, { a.time, 4 },
  }) do
    at = put(tree, each[1], tvb, at, each[2], true) -- the fields are little-endian
  end
  if tvb:len() > at then tree:add(a.payload, tvb(at)) end
  local kind, scheme = tvb(1, 1):uint(), tvb(0, 1):uint() % 16
  pinfo.cols.info = string.format("%s %s Job=%d Fragment=%d Slot=%d", SCHEMES[scheme] or "?",
                                  TYPES[kind] or "?", tvb(4, 2):le_uint(), tvb(8, 4):le_uint(),
                                  tvb(6, 2):le_uint())
  return tvb:len()
end

-- --- registration ----------------------------------------------------------------------------------

-- These transports send UDP checksum 0 over IPv6, as RFC 6935 allows for packets that have a checksum of
-- their own. Wireshark counts that as an error unless this preference is set; Lua may set it only once
-- preferences have been read, which is before a file is opened.
function mrc.init()
  if get_preference and not get_preference("udp.ignore_ipv6_zero_checksum") then
    set_preference("udp.ignore_ipv6_zero_checksum", true)
  end
end

udp_port:add(MRC_PORT, mrc)
udp_port:add(STEP_PORT, step)
udp_port:add(AGGREGATE_PORT, ina)
udp_port:add(ROCE_PORT, roce)
