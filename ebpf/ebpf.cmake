# Compiles every ebpf/NAME.bpf.c for the kernel and embeds it: NAME.skel.h (struct NAME_bpf) on the
# include path of loomnet_skeletons. Nothing is compiled when Loomnet runs.

# linux/types.h includes asm/types.h, which Debian and Ubuntu keep in a per-architecture folder that
# clang does not search for the bpf target.
set(LOOMNET_BPF_INCLUDES "")
set(loomnet_asm_candidates "")
if(CMAKE_LIBRARY_ARCHITECTURE)
  list(APPEND loomnet_asm_candidates /usr/include/${CMAKE_LIBRARY_ARCHITECTURE})
endif()
list(APPEND loomnet_asm_candidates /usr/include/${CMAKE_SYSTEM_PROCESSOR}-linux-gnu)
foreach(folder ${loomnet_asm_candidates})
  if(EXISTS ${folder}/asm/types.h)
    list(APPEND LOOMNET_BPF_INCLUDES -idirafter ${folder})
    break()
  endif()
endforeach()
foreach(folder ${LIBBPF_INCLUDE_DIRS})
  list(APPEND LOOMNET_BPF_INCLUDES -idirafter ${folder})
endforeach()

set(LOOMNET_SKELETON_DIR ${CMAKE_BINARY_DIR}/skeletons)
file(MAKE_DIRECTORY ${LOOMNET_SKELETON_DIR})
file(GLOB loomnet_bpf_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/ebpf/*.bpf.c)
# Each program depends on every header: a depfile would put the path of CMake, which is another one
# in each isolated build, into the command, and compile the programs again.
file(GLOB loomnet_bpf_headers CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/ebpf/*.h)
set(loomnet_skeleton_headers "")
# switch_objects.hpp: the objects of all switch programs, by name: of those that have a folder in core/switch/.
set(loomnet_object_includes "")
set(loomnet_object_rows "")
# control_objects.hpp: those of congestion controls for the kernel's TCP, which are struct_ops programs.
set(loomnet_control_includes "")
set(loomnet_control_rows "")
foreach(source ${loomnet_bpf_sources})
  get_filename_component(name ${source} NAME)
  string(REPLACE ".bpf.c" "" name ${name})
  set(object ${LOOMNET_SKELETON_DIR}/${name}.bpf.o)
  set(header ${LOOMNET_SKELETON_DIR}/${name}.skel.h)
  # A congestion control shares memory with an agent: exchanges of 32 bits, which no older set has.
  set(instructions "")
  set(control OFF)
  string(REGEX REPLACE "_rs$" "" base ${name})
  if(EXISTS ${CMAKE_SOURCE_DIR}/core/transport/congestion/${base}/kernel_agent.hpp)
    set(control ON)
    set(instructions -mcpu=v3)
  endif()
  add_custom_command(
    OUTPUT ${object}
    COMMAND ${LOOMNET_CLANG} -O2 -g -target bpf ${instructions} -std=gnu11 -Wall -Wextra -Wno-unused-function
            -I${CMAKE_SOURCE_DIR}/ebpf ${LOOMNET_BPF_INCLUDES} -c ${source} -o ${object}
    DEPENDS ${source} ${loomnet_bpf_headers}
    COMMENT "BPF object ${name}.bpf.o"
    VERBATIM)
  # The skeleton is written beside and moved: a failed bpftool leaves no half header behind.
  add_custom_command(
    OUTPUT ${header}
    COMMAND sh -c "\"$1\" gen skeleton \"$2\" name \"$3\" > \"$4.tmp\" && mv \"$4.tmp\" \"$4\"" sh
            ${LOOMNET_BPFTOOL} ${object} ${name}_bpf ${header}
    DEPENDS ${object}
    COMMENT "BPF skeleton ${name}.skel.h"
    VERBATIM)
  list(APPEND loomnet_skeleton_headers ${header})
  if(control)
    string(APPEND loomnet_control_includes "#include \"${name}.skel.h\"\n")
    string(APPEND loomnet_control_rows "  if (name == \"${name}\") return bytes(${name}_bpf__elf_bytes);\n")
  endif()
  if(EXISTS ${CMAKE_SOURCE_DIR}/core/switch/${name}/${name}_program.cpp)
    # The skeleton names the type of the program's configuration.
    string(APPEND loomnet_object_includes "#include \"ebpf/${name}_abi.h\"\n"
           "#include \"${name}.skel.h\"\n")
    string(APPEND loomnet_object_rows
           "  if (program == \"${name}\") return bytes(${name}_bpf__elf_bytes);\n")
  endif()
endforeach()
file(CONFIGURE OUTPUT ${LOOMNET_SKELETON_DIR}/switch_objects.hpp CONTENT
"// Written by ebpf.cmake: every switch program's object, by name; empty for an unknown one.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>
#include \"ebpf/xdp_abi.h\"
@loomnet_object_includes@
namespace loomnet {
inline std::span<const std::uint8_t> switch_object(std::string_view program) {
  const auto bytes = [](const void* (*elf)(std::size_t*)) {
    std::size_t size = 0;
    const auto* first = static_cast<const std::uint8_t*>(elf(&size));
    return std::span(first, size);
  };
@loomnet_object_rows@  return {};
}
}  // namespace loomnet
" @ONLY)
file(CONFIGURE OUTPUT ${LOOMNET_SKELETON_DIR}/control_objects.hpp CONTENT
"// Written by ebpf.cmake: the object of each congestion control for the kernel's TCP, by name, NAME_rs for kernels
// whose cong_control has two arguments; empty for an unknown one.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>
#include \"ebpf/control_abi.h\"
@loomnet_control_includes@
namespace loomnet {
inline std::span<const std::uint8_t> control_object(std::string_view name) {
  const auto bytes = [](const void* (*elf)(std::size_t*)) {
    std::size_t size = 0;
    const auto* first = static_cast<const std::uint8_t*>(elf(&size));
    return std::span(first, size);
  };
@loomnet_control_rows@  return {};
}
}  // namespace loomnet
" @ONLY)

add_custom_target(loomnet_skeleton_files DEPENDS ${loomnet_skeleton_headers})
add_library(loomnet_skeletons INTERFACE)
add_dependencies(loomnet_skeletons loomnet_skeleton_files)
target_include_directories(loomnet_skeletons SYSTEM INTERFACE ${LOOMNET_SKELETON_DIR})
