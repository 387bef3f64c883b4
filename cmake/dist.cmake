# What `cmake --install build --prefix dist` makes: a folder that runs wherever it is moved to, on any x86-64 Linux with glibc 2.36
# or newer, with nothing installed.
#
#   bin/                     troupe-gateway, troupe-worker, troupe-sim
#   lib/                     every shared library they need but glibc's own (the machine's, as its kernel and its names service
#                            go with it); libtroupe-cuda.so where it was built
#   share/troupe/configs/    configs/ of the source: settings, profiles, personas, the demo model (common/core/program_path.h)
#   share/troupe/licenses/   of the libraries in lib/
#
# How lib/ is found: programs carry $ORIGIN/../lib as DT_RPATH, the old kind. The new kind, DT_RUNPATH, serves only what an object
# itself asks for: libdnnl, copied as Debian built it, without a path, would then look for libOpenCL on the machine. DT_RPATH is
# inherited by all that a program loads, so nothing copied has to be patched; the price, that it comes before LD_LIBRARY_PATH, is
# wanted here. It only works while no library in lib/ has a DT_RUNPATH of its own (tests/e2e/test_dist.py).
#
# The path is linked in, not changed on installing: in build/bin it means build/lib, where what is opened at run time may be put.
# libstdc++ and libgcc_s are ours too: a machine's may be older. A library of the machine's (CUDA's) thus meets our libstdc++.

set(TROUPE_PROGRAMS troupe-gateway troupe-worker troupe-sim)
foreach(program ${TROUPE_PROGRAMS})
  set_target_properties(${program} PROPERTIES BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "\$ORIGIN/../lib")
  target_link_options(${program} PRIVATE LINKER:--disable-new-dtags)
endforeach()

# All that is built for the folder: what deploy/pack.sh asks for.
add_custom_target(installable)
add_dependencies(installable ${TROUPE_PROGRAMS})

install(TARGETS ${TROUPE_PROGRAMS} RUNTIME_DEPENDENCY_SET troupe_libraries RUNTIME DESTINATION bin)
install(RUNTIME_DEPENDENCY_SET troupe_libraries
  PRE_EXCLUDE_REGEXES "^ld-linux" "^lib(c|m|mvec|dl|pthread|rt|resolv|util|anl)\\.so"
  LIBRARY DESTINATION lib)

# Opened at run time where the machine has CUDA, whose own libraries are too large to bring along and are not looked for here.
if(TARGET troupe_cuda)
  set_target_properties(troupe_cuda PROPERTIES BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "\$ORIGIN:/usr/local/cuda/lib64")
  target_link_options(troupe_cuda PRIVATE LINKER:--disable-new-dtags)
  add_dependencies(installable troupe_cuda)
  install(TARGETS troupe_cuda LIBRARY DESTINATION lib)
endif()

install(DIRECTORY configs DESTINATION share/troupe)

# Who passes these libraries on passes on their licences: each Debian package's, where the libraries are Debian's.
install(CODE "set(multiarch \"${CMAKE_LIBRARY_ARCHITECTURE}\")")
install(CODE [[
  get_filename_component(prefix "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}" ABSOLUTE)  # of --prefix dist, too
  find_program(dpkg_query dpkg-query)
  file(GLOB libraries RELATIVE "${prefix}/lib" "${prefix}/lib/*.so.*")
  if(dpkg_query AND libraries)
    # Whole paths, as patterns take seconds, both ways a package may write them: it fails for those it does not know, and lists
    # the others all the same.
    list(TRANSFORM libraries PREPEND "/lib/${multiarch}/" OUTPUT_VARIABLE paths)
    list(TRANSFORM libraries PREPEND "/usr/lib/${multiarch}/")
    execute_process(COMMAND "${dpkg_query}" -S ${paths} ${libraries} OUTPUT_VARIABLE owners ERROR_QUIET)
    string(REGEX MATCHALL "[^\n:]+:[^\n]*\n" owners "${owners}")
    list(TRANSFORM owners REPLACE ":.*" "")
    list(REMOVE_DUPLICATES owners)
    file(MAKE_DIRECTORY "${prefix}/share/troupe/licenses")
    foreach(package ${owners})
      if(EXISTS "/usr/share/doc/${package}/copyright")
        file(COPY_FILE "/usr/share/doc/${package}/copyright" "${prefix}/share/troupe/licenses/${package}.txt")
      endif()
    endforeach()
  endif()
]])
