/* SPDX-License-Identifier: BSD-3-Clause

   A shared supervisor ends after SIGTERM: Supervisor::awaitDrained and Client::drained. The model is
   separate from the code; tests/supervisor/shared_test.cc shows the same with processes.

   A client may die at each step, may never acknowledge, and its call may run without end.

   Deliberate mistake: WITHOUT_TIMEOUT. */

#define CLIENTS 2

bool acknowledged[CLIENTS], call_runs[CLIENTS], forgotten[CLIENTS];
bool time_is_over, ended;

#define drained(c) (forgotten[c] || (acknowledged[c] && !call_runs[c]))

active [CLIENTS] proctype client() {
  byte me = _pid;
  if
  :: call_runs[me] = true
  :: true
  :: forgotten[me] = true -> goto over
  fi;
  if
  :: acknowledged[me] = true
  :: goto over  /* it never acknowledges */
  :: forgotten[me] = true -> goto over
  fi;
  if
  :: call_runs[me] = false
  :: true  /* it runs without end */
  :: forgotten[me] = true
  fi;
over:
  skip
}

active proctype clock() {
#ifndef WITHOUT_TIMEOUT
  time_is_over = true
#else
  skip
#endif
}

active proctype supervisor() {
  (drained(0) && drained(1)) || time_is_over;
  ended = true
}

ltl draining_ends { <> ended }
