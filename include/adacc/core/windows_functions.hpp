// SPDX-License-Identifier: MIT
/// The functions of Windows that the library calls, declared without <windows.h> and its macros.
#pragma once

#if defined(_WIN32)

// Declared as <windows.h> does: a program may include both. Structures are only named: callers pass their own, of the
// same layout.
extern "C" {
struct _SECURITY_ATTRIBUTES;
struct _OVERLAPPED;
struct _BY_HANDLE_FILE_INFORMATION;
union _ULARGE_INTEGER;
__declspec(dllimport) unsigned long __stdcall GetLastError(void);
__declspec(dllimport) int __stdcall CloseHandle(void*);
__declspec(dllimport) void* __stdcall CreateFileW(const wchar_t*, unsigned long, unsigned long,
                                                  _SECURITY_ATTRIBUTES*, unsigned long,
                                                  unsigned long, void*);
__declspec(dllimport) int __stdcall ReadFile(void*, void*, unsigned long, unsigned long*,
                                             _OVERLAPPED*);
__declspec(dllimport) int __stdcall WriteFile(void*, const void*, unsigned long, unsigned long*,
                                              _OVERLAPPED*);
__declspec(dllimport) int __stdcall SetEndOfFile(void*);
__declspec(dllimport) unsigned long __stdcall SetFilePointer(void*, long, long*, unsigned long);
__declspec(dllimport) int __stdcall GetDiskFreeSpaceExW(const wchar_t*, _ULARGE_INTEGER*,
                                                        _ULARGE_INTEGER*, _ULARGE_INTEGER*);
__declspec(dllimport) unsigned long __stdcall GetCurrentProcessId(void);
__declspec(dllimport) int __stdcall FlushFileBuffers(void*);
__declspec(dllimport) int __stdcall MoveFileExW(const wchar_t*, const wchar_t*, unsigned long);
__declspec(dllimport) int __stdcall DeleteFileW(const wchar_t*);
__declspec(dllimport) unsigned long __stdcall GetFileType(void*);
__declspec(dllimport) unsigned long __stdcall GetFileAttributesW(const wchar_t*);
__declspec(dllimport) int __stdcall GetFileInformationByHandle(void*, _BY_HANDLE_FILE_INFORMATION*);
__declspec(dllimport) unsigned long __stdcall GetFinalPathNameByHandleW(void*, wchar_t*,
                                                                        unsigned long,
                                                                        unsigned long);
__declspec(dllimport) int __stdcall MultiByteToWideChar(unsigned, unsigned long, const char*, int,
                                                        wchar_t*, int);
__declspec(dllimport) int __stdcall WideCharToMultiByte(unsigned, unsigned long, const wchar_t*,
                                                        int, char*, int, const char*, int*);
__declspec(dllimport) void* __stdcall CreateFileMappingW(void*, _SECURITY_ATTRIBUTES*,
                                                         unsigned long, unsigned long,
                                                         unsigned long, const wchar_t*);
#if defined(_WIN64)
__declspec(dllimport) void* __stdcall MapViewOfFile(void*, unsigned long, unsigned long,
                                                    unsigned long, unsigned long long);
__declspec(dllimport) int __stdcall VirtualUnlock(void*, unsigned long long);
__declspec(dllimport) void __stdcall GetCurrentThreadStackLimits(unsigned long long*,
                                                                 unsigned long long*);
#else
__declspec(dllimport) void* __stdcall MapViewOfFile(void*, unsigned long, unsigned long,
                                                    unsigned long, unsigned long);
__declspec(dllimport) int __stdcall VirtualUnlock(void*, unsigned long);
__declspec(dllimport) void __stdcall GetCurrentThreadStackLimits(unsigned long*, unsigned long*);
#endif
__declspec(dllimport) int __stdcall UnmapViewOfFile(const void*);
}

#endif
