/* SPDX-License-Identifier: BSD-3-Clause

   A pool of two slots and a spare is finally complete again, whatever died. The shipped slot table
   writes what it does at each event (slot_table_transitions.pml). This file has the processes that cause
   the events: workers that become usable or die, the zygote that forks them and dies itself, the clock.

   Assumed: DEATHS workers and ZYGOTE_DEATHS zygotes die, then no more. (If workers die without end, no
   worker can serve.) No fairness, as in channel.pml.

   Deliberate mistakes: WITHOUT_CLOCK (no retry after a back-off or a quarantine), WITHOUT_NEW_ZYGOTE,
   WITHOUT_ASKING_ANEW (for the workers that a dead zygote should have forked). */

#define DEATHS 7
#define ZYGOTE_DEATHS 2
#define PLACES 3

#define MAKING 0
#define USABLE 1
#define WAITING 2

byte place[PLACES];
bool zygote_serves = true;
bool forks_lost;  /* the zygote has died, its forks have not been requested again */

#include "slot_table_transitions.pml"

active proctype workers() {
  do
  :: atomic { place[0] == MAKING && zygote_serves && !forks_lost -> worker_usable(0) }
  :: atomic { place[1] == MAKING && zygote_serves && !forks_lost -> worker_usable(1) }
  :: atomic { place[2] == MAKING && zygote_serves && !forks_lost -> worker_usable(2) }
  od
}

active proctype deaths() {
  byte left = DEATHS, at;
  do
  :: left > 0 ->
    left--;
    atomic {
      select(at : 0 .. PLACES - 1);
      if
      :: place[at] != WAITING -> worker_lost_barren(at)
      :: place[at] == USABLE -> worker_lost_after_service(at)
      :: true  /* it lives */
      fi
    }
  :: break
  od
}

/* A worker has lived long enough: the ready spare takes its slot. */
active proctype recycling() {
  if
  :: atomic { place[0] == USABLE && place[2] == USABLE -> relieve(0) }
  :: true
  fi
}

active proctype zygote() {
  byte left = ZYGOTE_DEATHS;
  do
  :: left > 0 ->
    left--;
    atomic { zygote_serves = false; forks_lost = true };
#ifndef WITHOUT_NEW_ZYGOTE
    zygote_serves = true
#endif
  :: break
  od
}

active proctype supervisor() {
  do
#ifndef WITHOUT_CLOCK
  :: atomic {
    place[0] == WAITING || place[1] == WAITING || place[2] == WAITING -> tick(0)
  }
#endif
#ifndef WITHOUT_ASKING_ANEW
  :: atomic {
    forks_lost ->
    if
    :: place[0] == MAKING -> worker_not_made(0)
    :: else
    fi;
    if
    :: place[1] == MAKING -> worker_not_made(1)
    :: else
    fi;
    if
    :: place[2] == MAKING -> worker_not_made(2)
    :: else
    fi;
    forks_lost = false
  }
#endif
  od
}

ltl the_pool_is_whole_at_last {
  <> [] (place[0] == USABLE && place[1] == USABLE && place[2] == USABLE)
}
