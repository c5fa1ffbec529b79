// SPDX-License-Identifier: MIT
/// Every header of adacc under the macros that other people's headers are known to leave behind.
///
/// The standard library and Eigen come first: what they do under such macros is not our affair.
#include <outside_headers.hpp>

// <windows.h>
#define min(a, b) (((a) < (b)) ? (a) : (b))
#define max(a, b) (((a) > (b)) ? (a) : (b))
#define small char
#define near hostile near
#define far hostile far
#define interface struct
#define IN hostile IN
#define OUT hostile OUT
#define ERROR 0
#define DELETE hostile DELETE
// <termios.h>, <complex.h>, curses, X11, math.h
#define B0 0000000
#define B50 0000001
#define I hostile I
#define OK (0)
#define ERR (-1)
#define None hostile None
#define Bool int
#define Status int
#define Success 0
#define Always 2
#define True 1
#define False 0
#define TRUE 1
#define FALSE 0
#define DOMAIN 1
#define OVERFLOW 3
#define PI hostile PI
// macros of unit tests, asserts and logs
#define CHECK(...) hostile CHECK
#define ASSERT(...) hostile ASSERT
#define LOG(...) hostile LOG
// Unreal Engine, Apple's <AssertMacros.h>
#define check(...) hostile check
#define checkf(...) hostile checkf
#define checkSlow(...) hostile checkSlow
#define checkNoEntry(...) hostile checkNoEntry
#define verify(...) hostile verify
#define verifyf(...) hostile verifyf
#define ensure(...) hostile ensure
#define ensureMsgf(...) hostile ensureMsgf
#define require(...) hostile require
#define unimplemented(...) hostile unimplemented
#define TEXT(...) hostile TEXT
#define UPROPERTY(...) hostile UPROPERTY
// Qt
#define slots hostile slots
#define signals hostile signals
#define emit hostile emit
#define foreach hostile foreach
#define forever hostile forever

#include <all_forwards.hpp>
