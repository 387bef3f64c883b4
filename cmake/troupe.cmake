# Compiler settings for every target, the packages (design: Debian 12 names), and the two helpers
# troupe_library() and troupe_test() by which a folder becomes a target.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()

find_program(TROUPE_CCACHE ccache)
if(TROUPE_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${TROUPE_CCACHE})
endif()
find_program(TROUPE_MOLD mold)
if(TROUPE_MOLD)
  add_link_options(-fuse-ld=mold)
endif()

# x86-64-v2 is the floor; faster instruction sets are dispatched at run time, never assumed here.
add_compile_options("$<$<COMPILE_LANGUAGE:C,CXX>:-march=x86-64-v2;-Wall;-Wextra;-Wpedantic;-Wshadow;-Werror;-fno-omit-frame-pointer>"
                    $<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor>)
# The public face of these libraries is their Debian packages; warnings inside them are not ours.
add_compile_definitions(BOOST_ASIO_NO_DEPRECATED BOOST_ASIO_DISABLE_BOOST_ARRAY BOOST_BEAST_USE_STD_STRING_VIEW
                        BOOST_ALLOW_DEPRECATED_HEADERS)
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -g1 -DNDEBUG")
# Line numbers and light optimisation: what a sanitizer's report needs, at half the build time of -O1 -g.
set(CMAKE_CXX_FLAGS_DEBUG "-Og -g1")
if(TROUPE_SANITIZE)
  add_compile_options(-fsanitize=${TROUPE_SANITIZE} -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${TROUPE_SANITIZE})
  if(TROUPE_SANITIZE MATCHES "thread")
    # TSan cannot see atomic_thread_fence; Asio's fenced blocks use it.
    add_compile_definitions(BOOST_ASIO_DISABLE_FENCED_BLOCK)
    add_compile_options(-Wno-tsan)
  endif()
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # Coroutine frames: g++ 12 inlines Asio's operator new down to aligned_alloc, but not the delete that matches it.
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wno-mismatched-new-delete>)
endif()
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  # -Wthread-safety reads common/core/mutex.h's annotations; g++ does not.
  add_compile_options(-Wno-unknown-warning-option -Wthread-safety)
endif()
if(TROUPE_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()

set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)
find_package(OpenSSL REQUIRED)
find_package(ZLIB REQUIRED)
find_package(absl REQUIRED)
find_package(Boost 1.81 REQUIRED COMPONENTS json url system)
find_package(yaml-cpp REQUIRED)
find_package(prometheus-cpp REQUIRED)
find_package(simdjson REQUIRED)
find_path(TROUPE_XXHASH xxhash.h REQUIRED)  # its code is in its header
find_library(TROUPE_PCRE2 pcre2-8 REQUIRED)
find_library(TROUPE_UTF8PROC utf8proc REQUIRED)
find_library(TROUPE_SENTENCEPIECE sentencepiece REQUIRED)
find_library(TROUPE_DNNL dnnl REQUIRED)
find_library(TROUPE_TCMALLOC tcmalloc_minimal REQUIRED)

# Of a hundred seconds that a test binary took in batches of 12, its headers and their templates were 30.
set(TROUPE_UNITY_BATCH 48)
if(TROUPE_UNITY OR TROUPE_TESTS)
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
endif()
# Of files that are included some warnings are not true: a neighbour's own name is no outer one, nor is its type a header's.
set(TROUPE_UNITY_OPTIONS $<$<COMPILE_LANGUAGE:CXX>:-Wno-shadow;$<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>>)
# troupe_unity_files(OUT NAME BATCH FILE…): compiles up to BATCH of the files as one, for most of what a file costs are its headers
# and their templates; OUT is what to compile instead. unity.py decides which go together. For files that nothing sets options of.
function(troupe_unity_files out name batch)
  list(TRANSFORM ARGN REPLACE "^([^/].*)" "${CMAKE_CURRENT_SOURCE_DIR}/\\1" OUTPUT_VARIABLE sources)
  execute_process(COMMAND ${Python3_EXECUTABLE} cmake/unity.py ${batch} ${CMAKE_CURRENT_BINARY_DIR}/unity/${name} ${sources}
                  WORKING_DIRECTORY ${PROJECT_SOURCE_DIR} OUTPUT_VARIABLE files OUTPUT_STRIP_TRAILING_WHITESPACE
                  COMMAND_ERROR_IS_FATAL ANY)
  set(${out} ${files} PARENT_SCOPE)
endfunction()

# troupe_unity(TARGET BATCH): the same for a target's files. Those with options of their own, set before, stay by themselves.
function(troupe_unity name batch)
  get_target_property(sources ${name} SOURCES)
  set(alone)
  set(together)
  foreach(file ${sources})
    set(is_alone OFF)
    foreach(property COMPILE_OPTIONS COMPILE_DEFINITIONS COMPILE_FLAGS INCLUDE_DIRECTORIES SKIP_UNITY_BUILD_INCLUSION)
      get_source_file_property(value ${file} ${property})
      if(value)
        set(is_alone ON)
      endif()
    endforeach()
    if(is_alone)
      list(APPEND alone ${file})
    else()
      list(APPEND together ${file})
    endif()
  endforeach()
  troupe_unity_files(files ${name} ${batch} ${together})
  set_target_properties(${name} PROPERTIES SOURCES "${files};${alone}")
  target_compile_options(${name} PRIVATE ${TROUPE_UNITY_OPTIONS})
endfunction()

# troupe_library(NAME deps...): all .cc files of the current folder and of the folders below it (without main.cc) as a static
# library, except those below that are libraries of their own. A folder that has only headers becomes an interface library.
function(troupe_library name)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cc)
  list(FILTER sources EXCLUDE REGEX "/main\\.cc$")
  file(GLOB_RECURSE other_libraries RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR}/*/CMakeLists.txt)
  foreach(other ${other_libraries})
    get_filename_component(folder ${other} DIRECTORY)
    list(FILTER sources EXCLUDE REGEX "^${CMAKE_CURRENT_SOURCE_DIR}/${folder}/")
  endforeach()
  if(sources)
    add_library(${name} STATIC ${sources})
    if(TROUPE_UNITY)
      troupe_unity(${name} ${TROUPE_UNITY_BATCH})
    endif()
    target_include_directories(${name} PUBLIC ${CMAKE_SOURCE_DIR})
    target_link_libraries(${name} PUBLIC ${ARGN})
  else()
    add_library(${name} INTERFACE)
    target_include_directories(${name} INTERFACE ${CMAKE_SOURCE_DIR})
    target_link_libraries(${name} INTERFACE ${ARGN})
  endif()
endfunction()

# troupe_program(NAME deps...): main.cc of the current folder. Its malloc is tcmalloc's, except where a sanitizer brings its own.
function(troupe_program name)
  if(EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/main.cc)
    add_executable(${name} main.cc)
    target_link_libraries(${name} PRIVATE ${ARGN})
    if(NOT TROUPE_SANITIZE)
      target_link_libraries(${name} PRIVATE ${TROUPE_TCMALLOC})
    endif()
  endif()
endfunction()
