# Compiled by itself under a sanitizer, a test is for the greater part inline functions of headers, which its
# neighbours compile as well. So some tests of a library are compiled as one source and are one program, which
# takes half of the time. The unnamed namespaces of a test get the test's name there, so that none of its names
# meets a neighbour's.

# Makes the programs LIBRARY_tests_1, … of at most MOST of the TESTS each (paths without .cpp below tests/cpp), and
# puts their names into the list VARIABLE.
function(loomnet_tests_together variable library most tests)
  list(LENGTH tests count)
  math(EXPR programs "(${count} + ${most} - 1) / ${most}")
  set(made 0)
  set(names)
  while(made LESS programs)
    math(EXPR first "${count} * ${made} / ${programs}")
    math(EXPR made "${made} + 1")
    math(EXPR length "${count} * ${made} / ${programs} - ${first}")
    list(SUBLIST tests ${first} ${length} part)
    set(all "")
    foreach(test ${part})
      set(path ${CMAKE_SOURCE_DIR}/tests/cpp/${test})
      set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${path})
      get_filename_component(stem ${test} NAME_WE)
      file(READ ${path} text)
      string(REPLACE "\nnamespace {\n" "\nnamespace ${stem} {\n" text "${text}")
      string(APPEND all "#line 1 \"${path}\"\n${text}")
    endforeach()
    set(name ${library}_tests_${made})
    set(source ${CMAKE_BINARY_DIR}/together/${name}.cpp)
    file(WRITE ${source}.new "${all}")
    file(COPY_FILE ${source}.new ${source} ONLY_IF_DIFFERENT)
    add_executable(${name} EXCLUDE_FROM_ALL ${source})
    target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/tests/cpp/${library})
    list(APPEND names ${name})
  endwhile()
  set(${variable} ${names} PARENT_SCOPE)
endfunction()
