/* SPDX-License-Identifier: MIT */
/* Checks of the tests in C: each failure is told with the last error of adacc.h. */
#ifndef C_CHECK_H
#define C_CHECK_H

#include <adacc/adacc.h>
#include <stdio.h>
#include <string.h>

static int failures;
#define CHECK(holds)                                                                         \
  ((holds) ? 0                                                                               \
           : (++failures, fprintf(stderr, "%s:%d: %s; last error: %s\n", __FILE__, __LINE__, \
                                  #holds, adacc_error())))
/* A call that is refused, with these words. */
#define REFUSED(call, code, words) CHECK((call) == (code) && strstr(adacc_error(), words) != NULL)
#define MISUSE(call, words) REFUSED(call, ADACC_MISUSE, words)
#define NOTHING(call, words) CHECK((call) == NULL && strstr(adacc_error(), words) != NULL)

#endif
