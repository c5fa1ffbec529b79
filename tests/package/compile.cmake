# SPDX-License-Identifier: MIT
# Compiles a SOURCE by a compiler's command line and runs it:
#
#   cmake -DCXX=g++ -DSOURCE=main.cpp -DFLAGS=-Iinclude -DOUTPUT=program -P compile.cmake
#
# With -DPACKAGE=adacc -DPREFIX=… the flags are pkg-config's, for a package installed there.
if(PACKAGE)
  set(ENV{PKG_CONFIG_PATH} "${PREFIX}/share/pkgconfig")
  execute_process(COMMAND pkg-config --cflags --libs ${PACKAGE} OUTPUT_VARIABLE FLAGS
                  OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
endif()
separate_arguments(flags UNIX_COMMAND "${FLAGS}")
execute_process(COMMAND "${CXX}" -std=c++20 -Wall -Wextra -Werror
                        "${CMAKE_CURRENT_LIST_DIR}/consumer/${SOURCE}" -o "${OUTPUT}" ${flags}
                COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND "${OUTPUT}" COMMAND_ERROR_IS_FATAL ANY)
