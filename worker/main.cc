// SPDX-License-Identifier: BSD-3-Clause
// isopool-worker as a program that embeds Python: worker/program.h.
#include "worker/program.h"

int main(int argc, char** argv) { return isopool::worker::runProgram(argc, argv); }
