// SPDX-License-Identifier: MIT
/// Links lp_solve by the target alone: its header is not needed, and so not looked for.
extern "C" void lp_solve_version(int* major, int* minor, int* release, int* build);

int main() {
  int major = 0, minor = 0, release = 0, build = 0;
  lp_solve_version(&major, &minor, &release, &build);
  return major == 5 && minor == 5 ? 0 : 1;
}
