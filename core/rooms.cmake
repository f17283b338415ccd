# The rooms of core/ and what each may include. All rooms share one include folder, so the compiler
# accepts any #include; core/check_rooms.cmake compares them with what is written here.

# Registers a room with its libraries: it may include them and all that they may include.
function(loomnet_room name)
  cmake_parse_arguments(ARG "" "" "DEPENDS" ${ARGN})
  get_property(rooms GLOBAL PROPERTY LOOMNET_ROOMS)
  set(may)
  foreach(dependency ${ARG_DEPENDS})
    string(REGEX REPLACE "^loomnet_" "" room ${dependency})
    if(room IN_LIST rooms)
      get_property(theirs GLOBAL PROPERTY LOOMNET_MAY_${room})
      list(APPEND may ${room} ${theirs})
    elseif(NOT TARGET ${dependency})
      message(FATAL_ERROR "core/CMakeLists.txt: ${name} depends on ${dependency}, which is not listed before it")
    endif()
  endforeach()
  list(REMOVE_DUPLICATES may)
  set_property(GLOBAL APPEND PROPERTY LOOMNET_ROOMS ${name})
  set_property(GLOBAL PROPERTY LOOMNET_MAY_${name} ${may})
endfunction()

# Writes the rooms registered so far for core/check_rooms.cmake.
function(loomnet_write_rooms file)
  get_property(rooms GLOBAL PROPERTY LOOMNET_ROOMS)
  set(text "set(rooms ${rooms})\n")
  foreach(room ${rooms})
    get_property(may GLOBAL PROPERTY LOOMNET_MAY_${room})
    string(REPLACE ";" " " may "${may}")
    string(APPEND text "set(may_${room} ${may})\n")
  endforeach()
  file(GENERATE OUTPUT ${file} CONTENT "${text}")
endfunction()
