# Sources of one folder share most of their headers, and reading those is half of the time of compiling.
# So a few of them are compiled at a time, by a file that includes them. Their unnamed namespaces are then
# one: names in it differ within a folder. Incomplete includes of a source show with LOOMNET_TOGETHER=OFF,
# which `script/test apart` compiles.

# Replaces in the list VARIABLE all that may go together by files that each include at most MOST of them.
# Apart stay those with options of their own or with the property LOOMNET_APART. The files name sources
# as #include does, from core/, so that they are the same text in every clone and ccache knows them.
function(loomnet_together variable name most)
  if(NOT LOOMNET_TOGETHER)
    return()
  endif()
  set(result)
  set(together)
  foreach(source ${${variable}})
    file(RELATIVE_PATH relative ${CMAKE_CURRENT_SOURCE_DIR} ${source})
    set(apart FALSE)
    foreach(property LOOMNET_APART COMPILE_OPTIONS COMPILE_DEFINITIONS)
      get_source_file_property(value ${source} ${property})
      if(value)
        set(apart TRUE)
      endif()
    endforeach()
    if(apart OR relative MATCHES "^\\.\\.")
      list(APPEND result ${source})
    else()
      list(APPEND together ${relative})
    endif()
  endforeach()
  # As few files as `most` allows, and of equal lengths.
  list(LENGTH together count)
  math(EXPR files "(${count} + ${most} - 1) / ${most}")
  set(made 0)
  while(made LESS files)
    math(EXPR first "${count} * ${made} / ${files}")
    math(EXPR made "${made} + 1")
    math(EXPR length "${count} * ${made} / ${files} - ${first}")
    list(SUBLIST together ${first} ${length} part)
    list(TRANSFORM part REPLACE "(.+)" "#include \"\\1\"\n")
    string(JOIN "" text ${part})
    set(file ${CMAKE_CURRENT_BINARY_DIR}/together/${name}_${made}.cpp)
    file(CONFIGURE OUTPUT ${file} CONTENT "${text}" @ONLY)
    list(APPEND result ${file})
  endwhile()
  set(${variable} ${result} PARENT_SCOPE)
endfunction()
