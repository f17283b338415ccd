// Forward's lookups in the engine, for the forward program and for every program that falls through to
// ebpf/forward.h: ln_tables is a LookupTables, or a class that begins with one.
#pragma once

#include "ebpf/forward.h"
#include "switch/forward/lookup_tables.hpp"

LN_INLINE const loomnet::LookupTables& forward_native(const ln_tables* tables) {
  return *reinterpret_cast<const loomnet::LookupTables*>(tables);
}
LN_INLINE ln_u32 forward_lookup_sid(ln_tables* tables, ln_u64 block_and_usid) {
  return forward_native(tables).sid(block_and_usid);
}
LN_INLINE ln_u32 forward_lookup_host(ln_tables* tables, ln_u64 high, ln_u64 low) {
  return forward_native(tables).host(high, low);
}
LN_INLINE ln_u32 forward_lookup_member(ln_tables* tables, ln_u32 group, ln_u32 index) {
  return forward_native(tables).member(group, index);
}
