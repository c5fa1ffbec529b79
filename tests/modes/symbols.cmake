# SPDX-License-Identifier: MIT
# adacc keeps no state and calls nobody: judged by the symbols of two objects.
#
# UMBRELLA is a program of the host library alone: of others it may need the heap, where set-up keeps
# its tables, and memory functions that compilers call; it has nothing to initialize before main.
# ALL has every header: adacc may have constants in it, but no data that could change.
execute_process(COMMAND "${NM}" -C -u "${UMBRELLA}" OUTPUT_VARIABLE needed
                COMMAND_ERROR_IS_FATAL ANY)
string(REGEX REPLACE "[ ]+U ([^\n]+)\n" "\\1|" needed "${needed}")
string(REGEX REPLACE "\\[\\]" " array" needed "${needed}")  # brackets would join list elements
string(REPLACE "|" ";" needed "${needed}")
foreach(symbol IN LISTS needed)
  if(NOT symbol MATCHES "^(operator (new|delete) array\\(|mem(cpy|set|move|cmp)$|strlen$|_GLOBAL_OFFSET_TABLE_$|__stack_chk_fail$|$)")
    message(SEND_ERROR "the host library calls ${symbol}")
  endif()
endforeach()

execute_process(COMMAND "${NM}" -C --format=sysv "${UMBRELLA}" OUTPUT_VARIABLE symbols
                COMMAND_ERROR_IS_FATAL ANY)
if(symbols MATCHES "_GLOBAL__sub_I|\\.init_array")
  message(SEND_ERROR "the host library has static initialization")
endif()

execute_process(COMMAND "${NM}" --format=sysv "${ALL}" OUTPUT_VARIABLE symbols
                COMMAND_ERROR_IS_FATAL ANY)
string(REPLACE ".data.rel.ro" ".rodata" symbols "${symbols}")
string(REGEX MATCH "\n[^\n]*5adacc[^\n]*OBJECT[^\n]*\\|\\.t?(data|bss)[^\n]*" changeable "${symbols}")
if(changeable)
  message(SEND_ERROR "adacc has data that can change: ${changeable}")
endif()
if(NOT symbols MATCHES "5adacc")
  message(SEND_ERROR "${ALL} has nothing of adacc")
endif()
